// How near a whole-model fetch through shared memory comes to a plain memcpy.
//
// The model is Qwen3-0.6B (tied embeddings, bf16): trainers hold it as megatron tp=2,pp=2, rollouts
// need it as vllm tp=4, so that every tensor is cut differently on the two sides. Trainers live in
// processes of their own; one transport fetches all four rollout shards at once.
//
// Yardsticks: glibc's memcpy of the same number of bytes by the same number of threads, and the
// same with non-temporal stores (the stricter one where it is faster). All memory is in huge pages
// where the kernel gives them, and touched before. Rounds are interleaved, and the best of each
// counts: on a busy machine the best is what the method can do, the rest is what others did.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/known_models.hpp"
#include "bench/report.hpp"
#include "runtime/digest.hpp"
#include "runtime/internal/stream_copy.hpp"
#include "runtime/planner.hpp"
#include "runtime/region.hpp"
#include "runtime/workers.hpp"
#include "transports/shm/shm_transport.hpp"

namespace weir {
namespace {

constexpr int rounds = 7;
constexpr std::size_t chunk_bytes = std::size_t{4} << 20;

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "shm_bench: %s\n", result.error().text.c_str());
  std::exit(1);
}

std::vector<PlacedShard> placements(const Model& model, const char* layout, Side side,
                                    RegionKind kind) {
  const LayoutSpec spec = must(parse_layout(layout));
  const std::uint32_t ranks = must(size_of(spec)).ranks;
  std::vector<PlacedShard> all;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const RankLayout mine = must(lay_out(model, spec, rank));
    all.push_back(place(model, mine, {side, 0, rank}, ranks, kind));
  }
  return all;
}

std::unique_ptr<Region> region_of(RegionKind kind, std::uint64_t bytes) {
  return must(Region::allocate({.kind = kind, .bytes = bytes}));
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    std::memcpy(&bytes[i], &seed, 8);
  }
}

/// All trainers in a process of their own, which ends with the object.
class TrainerProcess {
 public:
  /// Forks: make these before any thread. Sets the manifests' tickets.
  TrainerProcess(std::vector<PlacedShard>& trainers, RegionKind kind) {
    std::array<int, 2> tickets{};
    std::array<int, 2> life{};
    if (pipe(tickets.data()) != 0 || pipe(life.data()) != 0) std::exit(1);
    child_ = fork();
    if (child_ == 0) {
      close(life[1]);
      serve(trainers, kind, tickets[1], life[0]);
    }
    close(tickets[1]);
    close(life[0]);
    life_ = life[1];
    for (PlacedShard& trainer : trainers) {
      std::string text(2, '\0');
      read_all(tickets[0], text);
      text.resize(static_cast<std::size_t>(static_cast<unsigned char>(text[0])) +
                  (static_cast<std::size_t>(static_cast<unsigned char>(text[1])) << 8));
      read_all(tickets[0], text);
      trainer.manifest.regions[0].tickets = {{"shm", text}};
    }
    close(tickets[0]);
  }
  ~TrainerProcess() {
    close(life_);
    waitpid(child_, nullptr, 0);
  }
  TrainerProcess(const TrainerProcess&) = delete;
  TrainerProcess& operator=(const TrainerProcess&) = delete;

 private:
  static void read_all(int pipe, std::string& text) {
    std::size_t done = 0;
    while (done < text.size()) {
      const ssize_t got = read(pipe, text.data() + done, text.size() - done);
      if (got <= 0) std::exit(1);
      done += static_cast<std::size_t>(got);
    }
  }

  [[noreturn]] static void serve(const std::vector<PlacedShard>& trainers, RegionKind kind,
                                 int tickets, int life) {
    const auto transport = make_shm_transport({});
    std::vector<std::unique_ptr<Region>> regions;
    for (const PlacedShard& trainer : trainers) {
      regions.push_back(region_of(kind, trainer.region_bytes));
      fill(regions.back()->bytes(), regions.size());
      const std::string ticket = must(transport->expose(*regions.back())).bytes;
      std::string text{static_cast<char>(ticket.size() & 0xff),
                       static_cast<char>(ticket.size() >> 8)};
      text += ticket;
      if (write(tickets, text.data(), text.size()) != static_cast<ssize_t>(text.size())) break;
    }
    char byte = 0;
    static_cast<void>(!read(life, &byte, 1));  // Until the parent goes.
    _exit(0);
  }

  pid_t child_ = -1;
  int life_ = -1;
};

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A way to fill all targets, and its best time.
struct Contender {
  std::string name;
  std::function<void()> work;
  double best_seconds = 1e9;
};

using Regions = std::vector<std::unique_ptr<Region>>;

/// Prepares one fetch a target and returns what starts them all and waits for them.
std::function<void()> fetch_all(Transport& transport, const Plan& plan, const Regions& targets) {
  auto fetches = std::make_shared<std::vector<std::unique_ptr<Fetch>>>();
  for (std::size_t i = 0; i < plan.parts.size(); ++i) {
    Region* const target[] = {targets[i].get()};
    fetches->push_back(must(transport.prepare(
        {.copies = plan.parts[i].copies, .sources = plan.sources, .targets = target})));
  }
  return [fetches] {
    std::latch left(static_cast<std::ptrdiff_t>(fetches->size()));
    for (const auto& fetch : *fetches) {
      fetch->start([&left](Result<FetchReport> report) {
        must(std::move(report));
        left.count_down();
      });
    }
    left.wait();
  };
}

/// Copies a flat block of the targets' sizes into them, in chunks that threads take in turn.
std::function<void()> copy_flat(Workers& workers, const Region& flat, const Regions& targets,
                                bool stream) {
  return [&workers, &flat, &targets, stream] {
    struct Chunk {
      std::byte* target;
      const std::byte* source;
      std::size_t bytes;
    };
    std::vector<Chunk> chunks;
    const std::byte* source = flat.bytes().data();
    for (const auto& target : targets) {
      const std::span<std::byte> bytes = target->bytes();
      for (std::size_t at = 0; at < bytes.size(); at += chunk_bytes) {
        chunks.push_back({&bytes[at], source + at, std::min(chunk_bytes, bytes.size() - at)});
      }
      source += bytes.size();
    }
    workers.for_each(chunks.size(), [&](std::size_t i) {
      const auto [to, from, count] = chunks[i];
      if (stream) {
        stream_copy(to, from, count);
        stream_fence();
      } else {
        std::memcpy(to, from, count);
      }
    });
  };
}

Digest digest_of_all(const Regions& regions) {
  Digester digester;
  for (const auto& region : regions) digester.add(region->bytes());
  return digester.finish();
}

Plan plan_of(const std::vector<PlacedShard>& trainers, const std::vector<PlacedShard>& rollouts) {
  std::vector<Manifest> manifests;
  for (const PlacedShard& trainer : trainers) manifests.push_back(trainer.manifest);
  for (const PlacedShard& rollout : rollouts) manifests.push_back(rollout.manifest);
  return must(make_plan(manifests));
}

/// Each contender in turn, round by round. The fetches must all leave the same bytes behind.
void race(std::vector<Contender>& contenders, std::size_t first_fetch, const Regions& targets) {
  for (int round = 0; round < rounds; ++round) {
    Digest expected;
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Contender& contender = contenders[i];
      contender.best_seconds = std::min(contender.best_seconds, seconds_of(contender.work));
      if (round > 0 || i < first_fetch) continue;
      const Digest digest = digest_of_all(targets);
      if (i == first_fetch) expected = digest;
      if (digest != expected) {
        std::fprintf(stderr, "shm_bench: '%s' left other bytes\n", contender.name.c_str());
        std::exit(1);
      }
    }
  }
}

int bench(int argc, char** argv) {
  Report report(argc, argv);
  const Model model = must(named_model("qwen3-0.6b"));
  auto shared = placements(model, "megatron:tp=2,pp=2", Side::trainer, RegionKind::host_shared);
  auto hidden = placements(model, "megatron:tp=2,pp=2", Side::trainer, RegionKind::host_private);
  const auto rollouts = placements(model, "vllm:tp=4", Side::rollout, RegionKind::host_private);
  const TrainerProcess shared_trainers(shared, RegionKind::host_shared);
  const TrainerProcess private_trainers(hidden, RegionKind::host_private);

  const Plan from_shared = plan_of(shared, rollouts);
  const Plan from_private = plan_of(hidden, rollouts);
  Regions targets;
  std::uint64_t copied_bytes = 0;
  for (const PlacedShard& rollout : rollouts) {
    targets.push_back(region_of(RegionKind::host_private, rollout.region_bytes));
    copied_bytes += rollout.region_bytes;
  }
  std::uint64_t fetched_bytes = 0;
  std::size_t copies = 0;
  for (const PlanPart& part : from_shared.parts) {
    copies += part.copies.size();
    for (const Copy& copy : part.copies) fetched_bytes += target_bytes(copy);
  }
  const auto flat = region_of(RegionKind::host_private, copied_bytes);
  fill(flat->bytes(), 1);

  Workers workers(0);
  const auto direct = make_shm_transport({});
  const auto staged = make_shm_transport({.staging_only = true});
  std::vector<Contender> contenders{
      {"memcpy", copy_flat(workers, *flat, targets, false)},
      {"non-temporal copy", copy_flat(workers, *flat, targets, true)},
      {"fetch, shared regions", fetch_all(*direct, from_shared, targets)},
      {"fetch, private regions", fetch_all(*direct, from_private, targets)},
      {"fetch, private regions, staged", fetch_all(*staged, from_private, targets)}};
  constexpr std::size_t first_fetch = 2;
  race(contenders, first_fetch, targets);

  const auto speed = [&](std::size_t i) {
    const std::uint64_t bytes = i < first_fetch ? copied_bytes : fetched_bytes;
    return static_cast<double>(bytes) / contenders[i].best_seconds / 1e9;
  };
  report.add({.name = "threads", .value = double{1} * workers.thread_count()});
  report.add(
      {.name = "bytes fetched", .value = static_cast<double>(fetched_bytes) / 1e9, .unit = "GB"});
  report.add({.name = "copies", .value = static_cast<double>(copies)});
  report.add({.name = contenders[0].name, .value = speed(0), .unit = "GB/s"});
  for (std::size_t i = 1; i < contenders.size(); ++i) {
    report.add({.name = contenders[i].name,
                .value = speed(i),
                .unit = "GB/s",
                .compared_with = "memcpy",
                .ratio = speed(i) / speed(0)});
  }
  report.add({.name = contenders[2].name,
              .value = speed(2),
              .unit = "GB/s",
              .compared_with = "non-temporal copy",
              .ratio = speed(2) / speed(1)});
  return report.print();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::bench(argc, argv);
}
