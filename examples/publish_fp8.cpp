// Megatron trains in bf16, vLLM generates in FP8 with a scale for each output channel. A trainer
// shard quantizes what it has whole rows of while it fills a slot; rows that the trainers cut
// travel as bf16, and the engine's shard quantizes them when it installs a version.
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/member.hpp"
#include "adapters/layouts/layout.hpp"
#include "adapters/model/known_models.hpp"
#include "runtime/conversion.hpp"
#include "runtime/conversion_sides.hpp"
#include "runtime/convert.hpp"
#include "runtime/staging.hpp"
#include "runtime/workers.hpp"
#include "transports/shm/shm_transport.hpp"

namespace {

using namespace weir;

Result<std::vector<Manifest>> manifests_of(const Model& model, const char* text, Side side) {
  const auto spec = parse_layout(text);
  if (!spec) return failure(spec);
  const auto layout = Layout::of(model, *spec);
  if (!layout) return failure(layout);
  std::vector<Manifest> manifests;
  for (std::uint32_t rank = 0; rank < layout->size().ranks; ++rank) {
    const auto kept = layout->rank(rank);
    if (!kept) return failure(kept);
    manifests.push_back(place(layout->model(), *kept, {side, 0, rank}, layout->size().ranks,
                              RegionKind::host_shared)
                            .manifest);
  }
  return manifests;
}

/// One shard's own memory, that which is exchanged, and what converts the one to the other.
class Shard {
 public:
  /// `from` and `to` are what is converted; `exchanged` is the one that peers read or write.
  static Result<std::unique_ptr<Shard>> make(const Manifest& from, const Manifest& to,
                                             const Manifest& exchanged) {
    std::unique_ptr<Shard> shard(new Shard(exchanged));
    for (auto [manifest, region] : {std::pair(&from, &shard->from_), std::pair(&to, &shard->to_)}) {
      auto made = Region::allocate(
          {.kind = RegionKind::host_shared, .bytes = manifest->regions.at(0).bytes});
      if (!made) return failure(made);
      *region = *std::move(made);
    }
    auto conversion = conversion_between(from, to);
    if (!conversion) return failure(conversion);
    shard->stager_ =
        std::make_unique<Stager>(*std::move(conversion), std::vector{shard->from_.get()},
                                 std::vector{shard->to_.get()}, 1, shard->workers_);
    return shard;
  }

  void convert(HookDone done) {
    stager_->start(0, {}, [done = std::move(done)](const Result<std::uint64_t>& bytes) {
      done(bytes ? Result<void>() : failure(bytes));
    });
  }

  Result<void> serve(std::uint16_t port, MemberHooks hooks) {
    const bool source = exchanged_.shard.side == Side::trainer;
    return run_member({.port = port,
                       .manifest = exchanged_,
                       .regions = {source ? to_.get() : from_.get()},
                       .transport = transport_.get(),
                       .hooks = std::move(hooks)});
  }

  [[nodiscard]] std::span<std::byte> from() const { return from_->bytes(); }
  [[nodiscard]] std::span<std::byte> to() const { return to_->bytes(); }

 private:
  explicit Shard(const Manifest& exchanged) : exchanged_(exchanged) {}

  const Manifest& exchanged_;
  std::unique_ptr<Transport> transport_ = make_shm_transport({.worker_count = 1});
  std::unique_ptr<Region> from_;
  std::unique_ptr<Region> to_;
  Workers workers_{1};
  std::unique_ptr<Stager> stager_;  ///< Of the three above.
};

/// A training step: every weight becomes the version's number.
void train(std::uint64_t version, std::span<std::byte> weights) {
  const float value = static_cast<float>(version);
  for (std::size_t at = 0; at < weights.size(); at += 2) {
    convert_run({.source = ElementType::f32, .target = ElementType::bf16}, &weights[at],
                reinterpret_cast<const std::byte*>(&value), 1);
  }
}

Result<void> serve_trainer(const Manifest& live, const Manifest& published, std::uint16_t port) {
  const auto shard = Shard::make(live, published, published);
  if (!shard) return failure(shard);
  MemberHooks hooks;
  hooks.update = [&shard](const HookCall& call, HookDone done) {
    train(call.version, (*shard)->from());
    (*shard)->convert(std::move(done));
  };
  return (*shard)->serve(port, std::move(hooks));
}

/// Whether the first code of a projection, times its scale, is the version's number.
bool holds(const Manifest& engine, std::span<const std::byte> memory, std::uint64_t version) {
  float product = 1;
  for (const Piece& piece : engine.pieces) {
    const Tensor& tensor = engine.tensors[piece.tensor];
    if (tensor.name == "model.layers.0.self_attn.o_proj.weight_scale") {
      float scale = 0;
      std::memcpy(&scale, &memory[piece.offset], sizeof scale);
      product *= scale;
    } else if (tensor.name == "model.layers.0.self_attn.o_proj.weight") {
      product *= memory[piece.offset] == std::byte{0x7e} ? 448.0F : 0.0F;  // The largest code.
    }
  }
  return product == static_cast<float>(version);
}

Result<void> serve_rollout(const Manifest& received, const Manifest& engine, std::uint16_t port) {
  const auto shard = Shard::make(received, engine, received);
  if (!shard) return failure(shard);
  MemberHooks hooks;
  hooks.install = [&shard](const HookCall&, HookDone done) { (*shard)->convert(std::move(done)); };
  hooks.verify = [&shard, &engine](const HookCall& call, const HookDone& done) {
    const bool right = holds(engine, (*shard)->to(), call.version);
    done(right ? Result<void>() : failure(ErrorCode::invalid, "not that version's weights"));
  };
  return (*shard)->serve(port, std::move(hooks));
}

Result<void> run() {
  const auto model = named_model("tiny-qwen3");
  if (!model) return failure(model);
  const auto live = manifests_of(*model, "megatron:tp=2", Side::trainer);
  if (!live) return failure(live);
  const auto engines = manifests_of(*model, "vllm:tp=2,quant=fp8_channel", Side::rollout);
  if (!engines) return failure(engines);
  const auto sides = choose_conversion_sides(*live, *engines);
  if (!sides) return failure(sides);
  std::printf("quantized at the source: %d tensors, at the target: %d\n",
              static_cast<int>(sides->tensors_at_source),
              static_cast<int>(sides->tensors_at_target));

  Workers shards(4);  // Outlives the exchange, whose end is what ends them.
  const auto exchange = Exchange::start({.trainer_ranks = 2, .rollout_ranks = 2});
  if (!exchange) return failure(exchange);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto say = [](const Result<void>& served) {
      if (!served) std::fprintf(stderr, "%s\n", served.error().text.c_str());
    };
    const std::uint16_t port = (*exchange)->port();
    shards.post([&live, &sides, rank, port, say] {
      say(serve_trainer((*live)[rank], sides->published[rank], port));
    });
    shards.post([&engines, &sides, rank, port, say] {
      say(serve_rollout(sides->received[rank], (*engines)[rank], port));
    });
  }
  const auto plan = (*exchange)->await_plan();
  if (!plan) return failure(plan);
  for (std::uint64_t version = 1; version <= 3; ++version) {
    const auto report = (*exchange)->publish(version);
    if (!report) return failure(report);
    std::printf("version %d: %d bytes moved\n", static_cast<int>(report->version),
                static_cast<int>(report->bytes_moved));
  }
  return {};
}

}  // namespace

int main() {
  const Result<void> done = run();
  if (!done) std::fprintf(stderr, "%s\n", done.error().text.c_str());
  return done ? 0 : 1;
}
