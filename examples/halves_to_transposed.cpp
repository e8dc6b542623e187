// Two trainer shards hold the upper and the lower half of one tensor; a rollout shard wants all of
// it, transposed. Nobody writes the copies: they follow from what each shard declares. Here all
// three live in one process; nothing changes when each has one of its own.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <vector>

#include "runtime/planner.hpp"
#include "transports/shm/shm_transport.hpp"

namespace {

constexpr std::int64_t rows = 4;
constexpr std::int64_t columns = 3;
const weir::Tensor weight = {
    .name = "weight", .type = weir::ElementType::f32, .shape = {rows, columns}};

// The manifest of a shard that holds `box` of the tensor at the beginning of its only region.
weir::Manifest declare(weir::ShardId shard, std::uint32_t replica_ranks, const weir::Box& box,
                       const weir::Dims& stride, const weir::Region& region,
                       weir::RegionInfo::Ticket ticket) {
  return {.shard = shard,
          .replica_ranks = replica_ranks,
          .inventory = weir::inventory_of({weight}),
          .tensors = {weight},
          .aliases = {},
          .regions = {{.kind = region.kind(),
                       .bytes = region.bytes().size(),
                       .tickets = {std::move(ticket)}}},
          .pieces = {{.box = box, .stride = stride}}};
}

float number_at(const weir::Region& region, std::int64_t index) {
  float number = 0;
  std::memcpy(&number, region.bytes().data() + index * 4, sizeof number);
  return number;
}

weir::Result<void> run() {
  const auto transport = weir::make_shm_transport({.worker_count = 1});
  std::vector<std::unique_ptr<weir::Region>> regions;
  std::vector<weir::Manifest> manifests;

  const weir::Box halves[] = {{.start = {0, 0}, .extent = {2, columns}},
                              {.start = {2, 0}, .extent = {2, columns}}};
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    auto region =
        weir::Region::allocate({.kind = weir::RegionKind::host_shared, .bytes = 2 * columns * 4});
    if (!region) return weir::failure(region);
    for (int i = 0; i < 2 * columns; ++i) {
      const float number = static_cast<float>(100 * rank + i);
      std::memcpy((*region)->bytes().data() + i * 4, &number, sizeof number);
    }
    auto ticket = transport->expose(**region);
    if (!ticket) return weir::failure(ticket);
    manifests.push_back(declare({weir::Side::trainer, 0, rank}, 2, halves[rank],
                                weir::dense_strides(halves[rank].extent, 4), **region, *ticket));
    regions.push_back(std::move(*region));
  }

  // Transposed: a step along the tensor's rows is 4 bytes, one along its columns 4 rows.
  auto target = weir::Region::allocate({.bytes = rows * columns * 4});
  if (!target) return weir::failure(target);
  manifests.push_back(declare({weir::Side::rollout, 0, 0}, 1, weir::Box::whole(weight.shape),
                              {4, rows * 4}, **target, {}));

  const auto plan = weir::make_plan(manifests);
  if (!plan) return weir::failure(plan);
  weir::Region* const targets[] = {target->get()};
  const auto fetch = transport->prepare(
      {.copies = plan->parts[0].copies, .sources = plan->sources, .targets = targets});
  if (!fetch) return weir::failure(fetch);

  std::promise<weir::Result<weir::FetchReport>> done;
  (*fetch)->start(
      [&done](const weir::Result<weir::FetchReport>& report) { done.set_value(report); });
  auto report = done.get_future();
  if (report.wait_for(std::chrono::seconds(10)) != std::future_status::ready) {
    return weir::failure(weir::ErrorCode::timeout, "the fetch took more than 10 s");
  }
  const auto moved = report.get();
  if (!moved) return weir::failure(moved);

  std::printf("%zu copies, %zu bytes\n", static_cast<std::size_t>(moved->copies),
              static_cast<std::size_t>(moved->bytes));
  for (std::int64_t column = 0; column < columns; ++column) {
    for (std::int64_t row = 0; row < rows; ++row) {
      std::printf("%5.0f", static_cast<double>(number_at(**target, column * rows + row)));
    }
    std::printf("\n");
  }
  return {};
}

}  // namespace

int main() {
  const auto result = run();
  if (!result) std::fprintf(stderr, "%s\n", result.error().text.c_str());
  return result ? 0 : 1;
}
