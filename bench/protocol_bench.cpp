// How far the protocol is from its floor, how fast it is simulated, and what a lease costs.
//
// A real exchange on the loopback and real members, all in this process; half of the shards are
// trainers, half are one rollout replica. The model is a matrix of 1 MiB. "Alike": both sides cut
// it by rows, so that each rollout shard reads one trainer, as where layouts agree. "Crosswise":
// rollouts cut it by columns, so that each reads every trainer.
//
// What follows upon what in `Exchange::publish`, each a message between processes:
//   update → acquire → acquired → staged ┬→ ok → updated
//                                        └→ pause, fetch, install, resume, each with its answer,
//                                           one after another; then verify with its answer.
// So 14 messages, or 7 round trips, on the longest way: `VersionReport::update` spans 3 of them,
// `VersionReport::publish`, from "updated" on, 3 more, and verification the last. The floor is a
// memcpy of the model and 7 bare round trips over loopback TCP. The other floor has rounds instead,
// in which one thread pings as many peers as there are trainers, since at each step the exchange
// has to tell all of them.
//
// Messages of one publication, T trainer shards, R rollout shards in C replicas:
//   between processes: of each trainer 6 (above); of each rollout shard fetch, pause, install,
//     resume, verify and their answers, 10: together 6 T + 10 R. Counted in the simulated world.
//   within the exchange: the owner's request and answer, 2; `acquire` and `staged` pass from the
//     supervisor to the planner to the ledger (answers go straight to the trainer), 4 T; "ready" to
//     the supervisor and from it to the coordinators, 1 + C; of each coordinator lease, confirm and
//     verify with their answers, 6 C, and the commit to ledger and supervisor, 2 C: 3 + 4 T + 9 C.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/internal/sim_messages.hpp"
#include "actors/ledger_state.hpp"
#include "actors/member.hpp"
#include "actors/simulation.hpp"
#include "bench/report.hpp"
#include "runtime/region.hpp"
#include "transports/shm/shm_transport.hpp"

namespace weir {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t side = 512;
constexpr std::size_t model_bytes = side * side * 4;
constexpr std::size_t ping_bytes = 100;
/// Round trips one after another on the longest way of a publication.
constexpr int round_trips = 7;
constexpr std::chrono::seconds simulation_time{4};
constexpr std::uint32_t readers = 1000;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "protocol_bench: %s\n", why.c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result) {
  if (!result) give_up(result.error().text);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

/// Of this thread or of the whole process: on a busy machine the work that there was to do.
Duration processor_time(clockid_t whose) {
  timespec time{};
  clock_gettime(whose, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Times of one thing, many times over.
class Times {
 public:
  void add(Duration time) { microseconds_.push_back(microseconds(time)); }
  /// Not more than a share `part` of them took less.
  [[nodiscard]] double quantile(double part) {
    std::sort(microseconds_.begin(), microseconds_.end());
    return microseconds_[static_cast<std::size_t>(part *
                                                  static_cast<double>(microseconds_.size() - 1))];
  }
  [[nodiscard]] double median() { return quantile(0.5); }

 private:
  std::vector<double> microseconds_;
};

// ---- the floor ---------------------------------------------------------------------------------

double memcpy_microseconds() {
  std::vector<std::byte> source(model_bytes, std::byte{1});
  std::vector<std::byte> target(model_bytes, std::byte{2});
  Times times;
  for (int i = 0; i < 200; ++i) {
    const auto start = Clock::now();
    std::memcpy(target.data(), source.data(), model_bytes);
    times.add(Clock::now() - start);
    source[0] = target[static_cast<std::size_t>(i)];
  }
  return times.median();
}

/// A TCP connection over the loopback, whose other end sends back what it gets from a thread of its
/// own, until it is closed.
class Echo {
 public:
  Echo() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    own_ = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, plain, length) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, plain, &length) != 0 || connect(own_, plain, length) != 0) {
      give_up("no TCP on the loopback");
    }
    const int other = accept(listener, nullptr, nullptr);
    close(listener);
    const int yes = 1;
    setsockopt(own_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    thread_ = std::thread([other] {
      std::array<char, ping_bytes> ping{};
      while (receive(other, ping) && send(other, ping)) {
      }
      close(other);
    });
  }
  ~Echo() {
    close(own_);
    thread_.join();
  }
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  void ping() { send(own_, ping_); }
  void await() { receive(own_, ping_); }

 private:
  using Ping = std::array<char, ping_bytes>;
  static bool receive(int from, Ping& ping) {
    return recv(from, ping.data(), ping.size(), MSG_WAITALL) == static_cast<ssize_t>(ping.size());
  }
  static bool send(int to, const Ping& ping) {
    return ::send(to, ping.data(), ping.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(ping.size());
  }

  int own_ = -1;
  Ping ping_{};
  std::thread thread_;
};

/// A ping to each of so many peers, and all their answers.
double round_microseconds(std::size_t peers) {
  std::vector<std::unique_ptr<Echo>> echoes;
  for (std::size_t i = 0; i < peers; ++i) echoes.push_back(std::make_unique<Echo>());
  Times times;
  for (int i = 0; i < 500; ++i) {
    const auto start = Clock::now();
    for (const auto& echo : echoes) echo->ping();
    for (const auto& echo : echoes) echo->await();
    times.add(Clock::now() - start);
  }
  return times.median();
}

// ---- publications ------------------------------------------------------------------------------

enum class Cut : std::uint8_t { alike, crosswise };

Manifest manifest_of(const ShardId& shard, std::uint32_t ranks, Cut cut) {
  const Tensor matrix{"matrix", ElementType::i32, {side, side}, TensorKind::parameter};
  Box box = Box::whole({side, side});
  const int dimension = shard.side == Side::rollout && cut == Cut::crosswise ? 1 : 0;
  box.extent[dimension] /= ranks;
  box.start[dimension] = box.extent[dimension] * shard.rank;
  Manifest manifest;
  manifest.shard = shard;
  manifest.replica_ranks = ranks;
  manifest.inventory = inventory_of({matrix});
  manifest.tensors = {matrix};
  manifest.regions = {{RegionKind::host_shared, model_bytes / ranks, {}}};
  manifest.pieces = {{0, 0, 0, box, dense_strides(box.extent, 4)}};
  return manifest;
}

/// An exchange with `ranks` trainers and as many rollouts.
class Stage {
 public:
  Stage(std::uint32_t ranks, Cut cut)
      : transport_(make_shm_transport({})),
        exchange_(must(Exchange::start({.trainer_ranks = ranks, .rollout_ranks = ranks}))) {
    for (const Side one : {Side::trainer, Side::rollout}) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) join({one, 0, rank}, ranks, cut);
    }
    must(exchange_->await_plan());
  }

  VersionReport publish(std::uint64_t version) {
    const VersionReport report = must(exchange_->publish(version));
    std::uint64_t served = 0;
    std::memcpy(&served, regions_[regions_.size() / 2]->bytes().data(), sizeof served);
    if (served != version || report.bytes_moved != model_bytes) {
      give_up("rollout 0.0 does not have the bytes of version " + std::to_string(version));
    }
    return report;
  }

 private:
  void join(const ShardId& shard, std::uint32_t ranks, Cut cut) {
    MemberOptions options;
    options.port = exchange_->port();
    options.manifest = manifest_of(shard, ranks, cut);
    regions_.push_back(
        must(Region::allocate({.kind = RegionKind::host_shared, .bytes = model_bytes / ranks})));
    options.regions = {regions_.back().get()};
    options.transport = transport_.get();
    options.silence_max = std::chrono::seconds(20);
    options.hooks.update = [bytes = regions_.back()->bytes()](const HookCall& call,
                                                              const HookDone& done) {
      std::memcpy(bytes.data(), &call.version, sizeof call.version);
      done({});
    };
    const auto done_at_once = [](const HookCall&, const HookDone& done) { done({}); };
    options.hooks.pause = options.hooks.install = options.hooks.resume = done_at_once;
    members_.push_back(must(Member::start(options)));
  }

  std::vector<std::unique_ptr<Region>> regions_;
  std::unique_ptr<Transport> transport_;
  std::vector<std::unique_ptr<Member>> members_;
  std::unique_ptr<Exchange> exchange_;
};

void add_with_floor(Report& report, const std::string& name, double value, double floor,
                    const std::string& floor_name) {
  report.add({name, value, "us", floor_name, value / floor});
}

void bench_publications(Report& report, std::uint32_t shards, Cut cut, int count) {
  const std::uint32_t ranks = shards / 2;
  const std::string name = std::to_string(shards) + " shards" +
                           (shards == 2             ? ""
                            : cut == Cut::crosswise ? ", crosswise"
                                                    : ", alike");
  const double copy = memcpy_microseconds();
  const double floor = copy + round_trips * round_microseconds(1);
  const double wide_floor = copy + round_trips * round_microseconds(ranks);
  Times update;
  Times publish;
  Times sum;
  Times whole;
  Stage stage(ranks, cut);
  constexpr int warm_up = 3;  // Chunks are bound to memory at the first.
  Duration processor_start{};
  for (int i = 0; i < warm_up + count; ++i) {
    if (i == warm_up) processor_start = processor_time(CLOCK_PROCESS_CPUTIME_ID);
    const auto start = Clock::now();
    const VersionReport one = stage.publish(static_cast<std::uint64_t>(i) + 1);
    const auto took = Clock::now() - start;
    if (i < warm_up) continue;
    update.add(one.update);
    publish.add(one.publish);
    sum.add(one.update + one.publish);
    whole.add(took);
  }
  const Duration processor = (processor_time(CLOCK_PROCESS_CPUTIME_ID) - processor_start) / count;
  const std::string trips = std::to_string(round_trips);
  report.add({name + ", memcpy and " + trips + " pings", floor, "us", "", 0});
  if (ranks > 1) {
    report.add({name + ", memcpy and " + trips + " rounds of " + std::to_string(ranks) + " pings",
                wide_floor, "us", "", 0});
  }
  report.add({name + ", update, median", update.median(), "us", "", 0});
  report.add({name + ", publish, median", publish.median(), "us", "", 0});
  report.add({name + ", update + publish, median", sum.median(), "us", "", 0});
  report.add({name + ", update + publish, p90", sum.quantile(0.9), "us", "", 0});
  add_with_floor(report, name + ", whole call, median", whole.median(), floor, "memcpy and pings");
  if (ranks > 1) {
    add_with_floor(report, name + ", whole call, median", whole.median(), wide_floor,
                   "memcpy and rounds of pings");
  }
  report.add({name + ", whole call, p90", whole.quantile(0.9), "us", "", 0});
  report.add({name + ", processor time of all shards", microseconds(processor), "us", "", 0});
  report.add({name + ", the same for each message between processes",
              microseconds(processor) / (16.0 * ranks), "us", "", 0});
}

void bench_messages(Report& report, std::uint32_t shards) {
  const std::uint32_t half = shards / 2;
  const double ranks = half;
  const auto counted = static_cast<double>(must(sim::messages_of_publication(half, half)));
  const double formula = 6 * ranks + 10 * ranks;
  const std::string name = std::to_string(shards) + " shards, messages of a publication";
  report.add({name + " between processes, counted", counted, "", "6 T + 10 R", counted / formula});
  report.add({name + " within the exchange, 3 + 4 T + 9 C", 3 + 4 * ranks + 9, "", "", 0});
}

// ---- simulation --------------------------------------------------------------------------------

void bench_simulation(Report& report, unsigned threads, const std::string& name) {
  std::atomic<std::uint64_t> next_seed{1};
  std::atomic<std::uint64_t> seeds{0};
  std::atomic<std::uint64_t> events{0};
  const auto start = Clock::now();
  const Duration processor_start = processor_time(CLOCK_PROCESS_CPUTIME_ID);
  std::vector<std::thread> crew;
  for (unsigned i = 0; i < threads; ++i) {
    crew.emplace_back([&] {
      while (Clock::now() - start < simulation_time) {
        events += must(simulate({.seed = next_seed++})).steps;
        ++seeds;
      }
    });
  }
  for (std::thread& thread : crew) thread.join();
  const double seconds = microseconds(Clock::now() - start) / 1e6;
  const double processor_seconds =
      microseconds(processor_time(CLOCK_PROCESS_CPUTIME_ID) - processor_start) / 1e6;
  report.add({"simulation, " + name + ", seeds", static_cast<double>(seeds.load()) / seconds * 60,
              "1/min", "", 0});
  report.add({"simulation, " + name + ", events", static_cast<double>(events.load()) / seconds,
              "1/s", "", 0});
  report.add({"simulation, " + name + ", events of a second of processor time",
              static_cast<double>(events.load()) / processor_seconds, "1/s", "", 0});
}

// ---- leases ------------------------------------------------------------------------------------

constexpr std::uint32_t trainer_ranks = 8;

/// One trainer replica, and `readers` rollout replicas of one shard, with tickets of usual size.
class Readers {
 public:
  Readers() {
    roster.trainer_ranks = trainer_ranks;
    for (std::uint32_t rank = 0; rank < trainer_ranks; ++rank) {
      const ShardId shard{Side::trainer, 0, rank};
      roster.sources.push_back(shard);
      MemberInfo& member = join(shard);
      member.slots = 2;
      member.status.slots.resize(2);
    }
    roster.patterns[{Side::trainer, 0}] = 0;
    for (std::uint32_t replica = 0; replica < readers; ++replica) {
      roster.patterns[{Side::rollout, replica}] = 0;
      join({Side::rollout, replica, 0});
    }
    ledger.update(roster);
  }

  /// A replica's process has been started again.
  void restart(std::uint32_t replica) {
    join({Side::rollout, replica, 0});
    ledger.update(roster);
  }

  void publish(std::uint64_t version) {
    for (const bool stands : {false, true}) {
      for (std::uint32_t rank = 0; rank < trainer_ranks; ++rank) {
        const ShardId shard{Side::trainer, 0, rank};
        must(stands ? ledger.staged(shard, version) : ledger.acquire(shard, version));
      }
    }
    ledger.take_effects();
  }

  std::uint64_t lease(std::uint32_t replica, std::uint64_t version) {
    ledger.lease(version, replica, 0, roster.term({Side::rollout, replica}));
    for (const LedgerEffect& effect : ledger.take_effects()) {
      if (const auto* leased = std::get_if<ledger::Leased>(&effect)) return leased->lease.number;
    }
    give_up("a lease was not granted");
  }

  void commit(std::uint32_t replica, std::uint64_t version, std::uint64_t lease) {
    must(ledger.confirm(lease));
    ledger.committed(replica, version, 0, roster.term({Side::rollout, replica}));
    ledger.take_effects();
  }

  Roster roster;
  LedgerState ledger{{}};

 private:
  MemberInfo& join(const ShardId& shard) {
    MemberInfo& member = roster.members[shard];
    member.shard = shard;
    member.seat = ++last_seat_;
    member.regions = {{RegionKind::host_shared, 1 << 20, {{"shm", std::string(100, 'x')}}}};
    return member;
  }

  std::uint64_t last_seat_ = 0;
};

void bench_leases(Report& report) {
  Readers all;
  std::uint64_t version = 0;
  const auto measure = [&](const std::string& name, const std::function<void()>& work) {
    Times times;
    for (int i = 0; i < 5; ++i) {
      all.publish(++version);
      const Duration start = processor_time(CLOCK_THREAD_CPUTIME_ID);
      work();
      times.add((processor_time(CLOCK_THREAD_CPUTIME_ID) - start) / readers);
    }
    report.add({std::to_string(readers) + " readers, a lease, " + name, times.median(), "us",
                "goal 20 us", times.median() / 20});
  };
  measure("all at once", [&] {
    std::vector<std::uint64_t> leases;
    for (std::uint32_t i = 0; i < readers; ++i) leases.push_back(all.lease(i, version));
    for (std::uint32_t i = 0; i < readers; ++i) all.commit(i, version, leases[i]);
  });
  measure("one after another", [&] {
    for (std::uint32_t i = 0; i < readers; ++i) all.commit(i, version, all.lease(i, version));
  });
  measure("a member restarts at each tenth", [&] {
    for (std::uint32_t i = 0; i < readers; ++i) {
      if (i % 10 == 0) all.restart(i);
      all.commit(i, version, all.lease(i, version));
    }
  });
}

int bench(int argc, char** argv) {
  Report report(argc, argv);
  bench_publications(report, 2, Cut::alike, 300);
  bench_publications(report, 16, Cut::alike, 100);
  bench_publications(report, 16, Cut::crosswise, 100);
  bench_publications(report, 64, Cut::alike, 40);
  bench_publications(report, 64, Cut::crosswise, 40);
  for (const std::uint32_t shards : {2U, 16U, 64U}) bench_messages(report, shards);
  bench_simulation(report, 1, "one thread");
  bench_simulation(report, std::thread::hardware_concurrency(), "all cores");
  bench_leases(report);
  return report.print();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::bench(argc, argv);
}
