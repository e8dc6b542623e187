// How near a fetch by RDMA comes to perftest's ib_read_bw in the same run, and what short runs
// cost.
//
// In the virtual machine of tests/rdma, rxe0 reads from rxe1 across their cable; elsewhere all
// devices of this host read from themselves. The source is a process of its own. Rounds of ours and
// of perftest's are interleaved, and the best of each counts. Clock and processor are emulated
// there: only ratios mean anything.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/report.hpp"
#include "runtime/region.hpp"
#include "transports/rdma/rdma_transport.hpp"

namespace weir {
namespace {

constexpr std::uint64_t region_bytes = std::uint64_t{32} << 20;
constexpr int rounds = 3;
constexpr int perftest_reads = 32;  // of 1 MiB

template <class T>
T must(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "rdma_bench: %s\n", result.error().text.c_str());
  std::exit(1);
}

bool in_machine() {
  return access("/sys/class/infiniband/rxe1", F_OK) == 0;
}

std::vector<std::string> devices(const char* name) {
  if (in_machine()) return {name};
  return {};
}

/// A process that lets others read a region until this ends.
class Source {
 public:
  /// Forks: make it before any thread.
  Source() {
    std::array<int, 2> tickets{};
    std::array<int, 2> life{};
    if (pipe(tickets.data()) != 0 || pipe(life.data()) != 0) std::exit(1);
    child_ = fork();
    if (child_ == 0) {
      close(life[1]);
      serve(tickets[1], life[0]);
    }
    close(tickets[1]);
    close(life[0]);
    life_ = life[1];
    std::array<char, 4096> text{};
    const ssize_t length = read(tickets[0], text.data(), text.size());
    if (length <= 0) std::exit(1);
    close(tickets[0]);
    ticket_.assign(text.data(), static_cast<std::size_t>(length));
  }
  ~Source() {
    close(life_);
    waitpid(child_, nullptr, 0);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  [[nodiscard]] PlanSource plan_source() const {
    return {.shard = {},
            .regions = {{RegionKind::host_private, region_bytes, {{"rdma", ticket_}}}}};
  }

 private:
  [[noreturn]] static void serve(int tickets, int life) {
    const auto transport = must(make_rdma_transport({.devices = devices("rxe1")}));
    const auto region = must(Region::allocate({.bytes = region_bytes}));
    const std::string ticket = must(transport->expose(*region)).bytes;
    if (write(tickets, ticket.data(), ticket.size()) < 0) std::_Exit(1);
    char byte = 0;
    static_cast<void>(read(life, &byte, 1));  // Ends with the parent.
    std::_Exit(0);
  }

  pid_t child_ = -1;
  int life_ = -1;
  std::string ticket_;
};

/// Seconds that one fetch takes.
double fetch_once(Fetch& fetch) {
  std::promise<Result<FetchReport>> promise;
  const auto begin = std::chrono::steady_clock::now();
  fetch.start([&promise](Result<FetchReport> report) { promise.set_value(std::move(report)); });
  must(promise.get_future().get());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// GB/s of ib_read_bw with 1 MiB a READ, or 0 where it is not installed.
double perftest() {
  const std::string options = " -x 1 -s 1048576 -n " + std::to_string(perftest_reads);
  const std::string command =
      "(ib_read_bw -d rxe1" + options + " >/dev/null 2>&1 &) ; " +
      "until grep -qi :4853 /proc/net/tcp /proc/net/tcp6; do :; done; " +  // 18515, its port
      "timeout 60 ib_read_bw -d rxe0" + options +
      " 10.77.0.2 2>/dev/null | awk '$1 == 1048576 { print $4 }'";
  FILE* const output = popen(command.c_str(), "r");
  if (output == nullptr) return 0;
  std::array<char, 128> line{};
  const double mebibytes = std::fgets(line.data(), line.size(), output) != nullptr
                               ? std::strtod(line.data(), nullptr)
                               : 0;
  pclose(output);
  return mebibytes * (1 << 20) / 1e9;
}

struct Case {
  std::string name;
  std::unique_ptr<Fetch> fetch;
  std::uint64_t bytes = 0;
  double best = 0;  ///< GB/s.
};

Copy copy_of(std::int64_t run_bytes) {
  Copy copy;
  copy.source_type = copy.target_type = ElementType::u8;
  if (run_bytes == 0) {
    copy.extent = {static_cast<std::int64_t>(region_bytes)};
    copy.source_stride = copy.target_stride = {1};
  } else {
    const auto whole = static_cast<std::int64_t>(region_bytes);
    copy.extent = {whole / (2 * run_bytes), run_bytes};
    copy.source_stride = copy.target_stride = {2 * run_bytes, 1};
  }
  return copy;
}

int measure(int argc, char** argv) {
  Report report(argc, argv);
  const Source source;
  const auto transport = must(make_rdma_transport({.devices = devices("rxe0")}));
  const auto target = must(Region::allocate({.bytes = region_bytes}));
  Region* const targets[] = {target.get()};
  const PlanSource plan_source = source.plan_source();
  std::vector<Case> cases;
  for (const std::int64_t run : {0, 65536, 16384, 8192, 4096, 2048, 1024, 256}) {
    Case one;
    one.name = run == 0 ? "fetch of 32 MiB in one run"
                        : "fetch of 16 MiB in runs of " + std::to_string(run) + " bytes";
    const Copy copy = copy_of(run);
    one.fetch = must(transport->prepare({.copies = std::span(&copy, 1),
                                         .sources = std::span(&plan_source, 1),
                                         .targets = targets}));
    one.bytes = target_bytes(copy);
    cases.push_back(std::move(one));
  }
  const bool compare = in_machine() && std::system("command -v ib_read_bw >/dev/null") == 0;
  double yardstick = 0;
  for (int round = 0; round < rounds; ++round) {
    for (Case& one : cases) {
      one.best = std::max(one.best, static_cast<double>(one.bytes) / 1e9 / fetch_once(*one.fetch));
    }
    if (compare) yardstick = std::max(yardstick, perftest());
  }
  for (const Case& one : cases) {
    Figure figure{.name = one.name, .value = one.best, .unit = "GB/s"};
    if (yardstick > 0) {
      figure.compared_with = "ib_read_bw, 1 MiB";
      figure.ratio = one.best / yardstick;
    }
    report.add(figure);
  }
  return report.print();
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::measure(argc, argv);
}
