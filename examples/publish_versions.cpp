// A Megatron trainer of two ranks publishes versions to a vLLM engine of four. Each shard and the
// exchange's owner stand in one process here, a thread each; usually each is a process of its own.
#include <cstdio>
#include <cstring>
#include <span>

#include "actors/exchange.hpp"
#include "actors/member.hpp"
#include "adapters/layouts/layout.hpp"
#include "adapters/model/known_models.hpp"
#include "runtime/workers.hpp"
#include "transports/shm/shm_transport.hpp"

namespace {

using namespace weir;

/// One shard, until the exchange ends.
Result<void> serve(const Model& model, const char* layout, ShardId shard, std::uint16_t port) {
  const auto spec = parse_layout(layout);
  if (!spec) return failure(spec);
  const auto kept = lay_out(model, *spec, shard.rank);
  if (!kept) return failure(kept);
  const std::uint32_t ranks = size_of(*spec)->ranks;
  const PlacedShard placed = place(model, *kept, shard, ranks, RegionKind::host_shared);
  const auto region =
      Region::allocate({.kind = RegionKind::host_shared, .bytes = placed.region_bytes});
  if (!region) return failure(region);
  const auto transport = make_shm_transport({.worker_count = 1});

  const std::span<std::byte> weights = (*region)->bytes();
  MemberHooks hooks;
  hooks.update = [weights](const HookCall& call, const HookDone& done) {  // A training step.
    std::memset(weights.data(), static_cast<int>(call.version), weights.size());
    done({});
  };
  hooks.verify = [weights](const HookCall& call, const HookDone& done) {  // The engine goes on.
    const bool right = weights[0] == std::byte{static_cast<unsigned char>(call.version)};
    done(right ? Result<void>() : failure(ErrorCode::invalid, "not that version's bytes"));
  };
  return run_member({.port = port,
                     .manifest = placed.manifest,
                     .regions = {region->get()},
                     .transport = transport.get(),
                     .hooks = hooks});
}

Result<void> run() {
  const auto model = named_model("tiny-qwen3");
  if (!model) return failure(model);
  Workers shards(6);  // Outlives the exchange, whose end is what ends them.
  const auto exchange = Exchange::start({.trainer_ranks = 2, .rollout_ranks = 4});
  if (!exchange) return failure(exchange);
  const std::uint16_t port = (*exchange)->port();
  const auto start = [&](const char* layout, ShardId shard) {
    shards.post([&model, layout, shard, port] {
      const auto served = serve(*model, layout, shard, port);
      if (!served) std::fprintf(stderr, "%s\n", served.error().text.c_str());
    });
  };
  for (std::uint32_t rank = 0; rank < 2; ++rank) start("megatron:tp=2", {Side::trainer, 0, rank});
  for (std::uint32_t rank = 0; rank < 4; ++rank) start("vllm:tp=4", {Side::rollout, 0, rank});

  const auto plan = (*exchange)->await_plan();
  if (!plan) return failure(plan);
  for (std::uint64_t version = 1; version <= 3; ++version) {
    const auto report = (*exchange)->publish(version);
    if (!report) return failure(report);
    std::printf("version %d: %d bytes needed, %d moved\n", static_cast<int>(report->version),
                static_cast<int>(report->bytes_needed), static_cast<int>(report->bytes_moved));
  }
  return {};
}

}  // namespace

int main() {
  const Result<void> done = run();
  if (!done) std::fprintf(stderr, "%s\n", done.error().text.c_str());
  return done ? 0 : 1;
}
