#pragma once
// One transport worker under CAF's testing scheduler, with a transport whose copies are done when
// the test says so, and memory whose numbers name source, slot and place.

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/internal/errors.hpp"
#include "actors/internal/system.hpp"
#include "actors/internal/transport_worker.hpp"
#include "tests/actors/fake_transport.hpp"

namespace weir::bench {

inline constexpr std::size_t source_elements = 64;
inline constexpr std::size_t target_elements = 2 * source_elements;
inline constexpr std::uint32_t slots = 2;

/// A fake transport that counts, and can refuse to read some shard.
class CountingTransport final : public Transport {
 public:
  explicit CountingTransport(Chores& chores)
      : fake([this](int start) { return manner ? manner(start) : Manner::succeed; }, &chores) {}

  [[nodiscard]] std::string_view name() const noexcept override { return fake.name(); }
  [[nodiscard]] bool reads(RegionKind) const noexcept override { return true; }
  [[nodiscard]] bool writes(RegionKind) const noexcept override { return true; }
  Result<RegionInfo::Ticket> expose(const Region& region) override { return fake.expose(region); }
  void withdraw(const Region& region) noexcept override { fake.withdraw(region); }
  Result<std::unique_ptr<Fetch>> prepare(const FetchRequest& request) override {
    ++prepared;
    if (request.sources.front().shard == unreadable) {
      return failure(ErrorCode::unavailable, "it is\ngone");
    }
    return fake.prepare(request);
  }

  FakeTransport fake;
  std::function<Manner(int)> manner;
  std::optional<ShardId> unreadable;
  int prepared = 0;
};

/// Memory of some shard: slots of one region.
struct Memory {
  Memory(std::size_t elements, std::int32_t name) {
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      std::vector<std::int32_t> numbers;
      for (std::size_t i = 0; i < elements; ++i) {
        numbers.push_back(name * 10'000 + static_cast<std::int32_t>(slot * 1000 + i));
      }
      values.push_back(std::move(numbers));
    }
    for (auto& numbers : values) {
      regions.push_back(Region::borrow(std::as_writable_bytes(std::span(numbers))));
    }
  }
  [[nodiscard]] std::vector<Region*> pointers() const {
    std::vector<Region*> result;
    for (const auto& region : regions) result.push_back(region.get());
    return result;
  }
  [[nodiscard]] std::vector<RegionInfo> infos(Transport& transport) const {
    std::vector<RegionInfo> result;
    for (const auto& region : regions) {
      result.push_back({region->kind(), region->bytes().size(), {*transport.expose(*region)}});
    }
    return result;
  }

  std::vector<std::vector<std::int32_t>> values;  ///< By slot.
  std::vector<std::unique_ptr<Region>> regions;
};

template <class T>
using Answer = std::shared_ptr<std::optional<Result<T>>>;

/// Trainer replicas 0 and 1 of two ranks, of which the plan reads replica 0; a peer; a target. The
/// first half of the target is rank 0's elements, the second half rank 1's, transposed as 8 by 8.
/// A window of 128 bytes makes eight chunks of 64.
class Bench {
 public:
  explicit Bench(std::uint64_t window_bytes_max = 128)
      : system_(config_.use_virtual_time()),
        transport(chores),
        worker_(spawn_transport_worker(system_, transport, target.pointers(),
                                       {window_bytes_max, slots})) {
    for (std::int32_t i = 0; i < 4; ++i) {
      sources.push_back(std::make_unique<Memory>(source_elements, i + 1));
      plan.sources.push_back(
          {{Side::trainer, static_cast<std::uint32_t>(i) / 2, static_cast<std::uint32_t>(i) % 2},
           sources.back()->infos(transport),
           slots});
    }
    Copy copy;
    copy.source_type = copy.target_type = ElementType::i32;
    copy.extent = {source_elements};
    copy.source_stride = copy.target_stride = {4};
    Copy transposed = copy;
    transposed.source = 1;
    transposed.target_offset = 4 * source_elements;
    transposed.extent = {8, 8};
    transposed.source_stride = {4, 32};
    transposed.target_stride = {32, 4};
    plan.parts = {{{Side::rollout, 0, 0}, {copy, transposed}}};
    order = {7,
             1,
             1,
             0,
             {{0, 0, false}, {1, 0, false}, {0, 0, false}, {1, 0, false}},
             slots,
             {Side::rollout, 1, 0},
             peer.infos(transport),
             {},
             std::chrono::seconds(10)};
  }
  ~Bench() {
    if (worker_) end();
    scheduler().clock().cancel_all();
    run();
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void end() {
    caf::anon_send_exit(worker_, caf::exit_reason::user_shutdown);
    worker_ = nullptr;
    run();
  }

  template <class T, class... Ts>
  Answer<T> ask(const Ts&... content) {
    auto answer = std::make_shared<std::optional<Result<T>>>();
    system_.spawn([worker = worker_, answer, ... content = content](caf::event_based_actor* self) {
      self->request(worker, caf::infinite, content...)
          .then([answer](const T& reply) { answer->emplace(reply); },
                [answer](caf::error& error) { answer->emplace(tl::unexpected(from_caf(error))); });
    });
    run();
    return answer;
  }
  Result<std::uint64_t> prepare() {
    return **ask<std::uint64_t>(PrepareAtom::value, std::make_shared<const Plan>(plan));
  }
  void stand(std::uint64_t lease, const std::vector<std::uint64_t>& stands) {
    caf::anon_send(worker_, StandAtom::value, Standing{order.seat, lease, stands});
    run();
  }
  Answer<Fetched> fetch() { return ask<Fetched>(FetchAtom::value, order); }
  Answer<caf::ok_atom> cancel() { return ask<caf::ok_atom>(CancelAtom::value); }

  /// Prepares, fetches, and does all chores.
  Result<Fetched> fetch_whole() {
    REQUIRE(prepare());
    return finish(fetch());
  }
  Result<Fetched> finish(const Answer<Fetched>& answer) {
    while (!chores.empty()) do_chore();
    REQUIRE(answer->has_value());
    return **answer;
  }
  void do_chore() {
    const auto chore = std::move(chores.front());
    chores.pop_front();
    chore();
    run();
  }
  /// Virtual time goes on to the next deadline.
  void wait() {
    auto& clock = scheduler().clock();
    clock.current_time = clock.schedule().begin()->first;
    clock.trigger_expired_timeouts();
    run();
  }
  [[nodiscard]] Duration now() { return scheduler().clock().now().time_since_epoch(); }

  /// Whether a slot of the target holds what these slots of these shards hold.
  [[nodiscard]] bool holds(std::uint32_t target_slot, const Memory& first, const Memory& second,
                           std::uint32_t slot) const {
    std::vector<std::int32_t> expected = first.values[slot];
    for (std::size_t row = 0; row < 8; ++row) {
      for (std::size_t column = 0; column < 8; ++column) {
        expected.push_back(second.values[slot][8 * column + row]);
      }
    }
    return target.values[target_slot] == expected;
  }

 private:
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }
  void run() {
    while (scheduler().try_run_once()) {
    }
  }

  ActorSystemConfig config_;
  caf::actor_system system_;

 public:
  Chores chores;
  CountingTransport transport;
  std::vector<std::unique_ptr<Memory>> sources;
  Memory peer{target_elements, 8};
  Memory target{target_elements, 9};
  Plan plan;
  FetchOrder order;

 private:
  TransportWorkerActor worker_;
};

}  // namespace weir::bench
