// How long planning takes for large mixture-of-experts models, and how much memory.
//
// "expert parallel" and "experts cut": the model is like Qwen3-235B-A22B: 94 layers, hidden size
// 4096, 64 query and 4 KV heads of 128, 128 experts of width 1536, every tensor plain and under its
// Hugging Face name: 36,945 tensors. Manifests are built here directly, without adapters, for 1024
// trainer and 512 rollout shards.
//
// Rollouts: 32 replicas of 16 ranks; dense tensors by TP 16 (KV heads four times), experts whole,
// 8 of each layer per rank, [gate; up] of all its experts in one block.
// Trainers, "expert parallel": 8 replicas of PP 8 x 16 ranks; in a stage dense tensors by TP 4
// (each part on 4 ranks), experts whole, 8 of each layer per rank. Trainers, "experts cut": the
// same, but each expert is on 8 ranks of its stage, each of which has an eighth of its rows, as
// FSDP cuts it; 64 experts of each layer per rank.
//
// "manifests and plan": the model is like DeepSeek-V3 with 60 layers of 256 experts; layouts make
// the manifests of 4 Megatron replicas of EP 64 x PP 4 and of vLLM with TP 16, which 64 replicas
// share. The same at eight sizes shows that time grows as the number of pieces does.

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "adapters/layouts/layout.hpp"
#include "adapters/model/known_models.hpp"
#include "bench/report.hpp"
#include "runtime/codec.hpp"
#include "runtime/planner.hpp"

namespace weir {
namespace {

constexpr std::int64_t layers = 94;
constexpr std::int64_t hidden = 4096;
constexpr std::int64_t head_dim = 128;
constexpr std::int64_t query_heads = 64;
constexpr std::int64_t kv_heads = 4;
constexpr std::int64_t experts = 128;
constexpr std::int64_t expert_width = 1536;
constexpr std::int64_t vocabulary = 151936;

/// Collects one shard's pieces, laid one after another in one region as dense blocks.
class ShardBuilder {
 public:
  ShardBuilder(const ShardId& shard, std::uint32_t ranks, const Inventory& inventory) {
    manifest_.shard = shard;
    manifest_.replica_ranks = ranks;
    manifest_.inventory = inventory;
  }

  /// A box of a tensor, dense.
  void add(const std::string& name, const Dims& shape, const Box& box) {
    const auto tensor = static_cast<std::uint32_t>(manifest_.tensors.size());
    manifest_.tensors.push_back({name, ElementType::bf16, shape, TensorKind::parameter});
    manifest_.pieces.push_back({tensor, 0, used_, box, dense_strides(box.extent, 2)});
    used_ += static_cast<std::uint64_t>(element_count(box.extent)) * 2;
  }
  void whole(const std::string& name, const Dims& shape) { add(name, shape, Box::whole(shape)); }
  /// Part `index` of `count` equal ones along `dim`.
  void part(const std::string& name, const Dims& shape, int dim, std::int64_t index,
            std::int64_t count) {
    Box box = Box::whole(shape);
    box.extent[dim] = shape[dim] / count;
    box.start[dim] = index * box.extent[dim];
    add(name, shape, box);
  }

  Manifest finish() {
    manifest_.regions = {{RegionKind::host_shared, used_, {}}};
    return std::move(manifest_);
  }

 private:
  Manifest manifest_;
  std::uint64_t used_ = 0;
};

/// The dense tensors of a layer: rank `rank` of `tp`, KV heads repeated where tp exceeds them.
void add_dense(ShardBuilder& shard, const std::string& layer, std::int64_t rank, std::int64_t tp) {
  const std::int64_t kv_parts = std::min(tp, kv_heads);
  const std::int64_t kv_rank = rank * kv_parts / tp;
  const Dims kv{kv_heads * head_dim, hidden};
  shard.whole(layer + "input_layernorm.weight", {hidden});
  shard.part(layer + "self_attn.q_proj.weight", {query_heads * head_dim, hidden}, 0, rank, tp);
  shard.part(layer + "self_attn.k_proj.weight", kv, 0, kv_rank, kv_parts);
  shard.part(layer + "self_attn.v_proj.weight", kv, 0, kv_rank, kv_parts);
  shard.whole(layer + "self_attn.q_norm.weight", {head_dim});
  shard.whole(layer + "self_attn.k_norm.weight", {head_dim});
  shard.part(layer + "self_attn.o_proj.weight", {hidden, query_heads * head_dim}, 1, rank, tp);
  shard.whole(layer + "post_attention_layernorm.weight", {hidden});
  shard.whole(layer + "mlp.gate.weight", {experts, hidden});
}

/// `count` experts from `first` on, cut by rows into `cuts` of which this is `cut`: first gate and
/// up of each expert, then down of each.
void add_experts(ShardBuilder& shard, const std::string& layer, std::int64_t first,
                 std::int64_t count, std::int64_t cut, std::int64_t cuts) {
  const auto name = [&](std::int64_t expert, const char* projection) {
    return layer + "mlp.experts." + std::to_string(expert) + "." + projection + ".weight";
  };
  const Dims wide{expert_width, hidden};
  for (std::int64_t expert = first; expert < first + count; ++expert) {
    shard.part(name(expert, "gate_proj"), wide, 0, cut, cuts);
    shard.part(name(expert, "up_proj"), wide, 0, cut, cuts);
  }
  for (std::int64_t expert = first; expert < first + count; ++expert) {
    shard.part(name(expert, "down_proj"), {hidden, expert_width}, 0, cut, cuts);
  }
}

std::string layer_name(std::int64_t layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

Inventory inventory() {
  ShardBuilder all({}, 1, {});
  all.whole("model.embed_tokens.weight", {vocabulary, hidden});
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    add_dense(all, layer_name(layer), 0, 1);
    add_experts(all, layer_name(layer), 0, experts, 0, 1);
  }
  all.whole("model.norm.weight", {hidden});
  all.whole("lm_head.weight", {vocabulary, hidden});
  return inventory_of(all.finish().tensors);
}

Manifest rollout_shard(std::uint32_t replica, std::uint32_t rank, const Inventory& inventory) {
  constexpr std::uint32_t ranks = 16;
  ShardBuilder shard({Side::rollout, replica, rank}, ranks, inventory);
  shard.part("model.embed_tokens.weight", {vocabulary, hidden}, 0, rank, ranks);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    add_dense(shard, layer_name(layer), rank, ranks);
    add_experts(shard, layer_name(layer), rank * (experts / ranks), experts / ranks, 0, 1);
  }
  shard.whole("model.norm.weight", {hidden});
  shard.part("lm_head.weight", {vocabulary, hidden}, 0, rank, ranks);
  return shard.finish();
}

/// `cuts` 1: experts whole, 16 groups of them in a stage. `cuts` 8: 2 groups, cut by 8 ranks each.
Manifest trainer_shard(std::uint32_t replica, std::uint32_t rank, std::int64_t cuts,
                       const Inventory& inventory) {
  constexpr std::uint32_t stages = 8;
  constexpr std::uint32_t stage_ranks = 16;
  constexpr std::int64_t tp = 4;
  const std::uint32_t stage = rank / stage_ranks;
  const std::int64_t place = rank % stage_ranks;
  const std::int64_t groups = stage_ranks / cuts;
  ShardBuilder shard({Side::trainer, replica, rank}, stages * stage_ranks, inventory);
  if (stage == 0) {
    shard.part("model.embed_tokens.weight", {vocabulary, hidden}, 0, place % tp, tp);
  }
  for (std::int64_t layer = stage * layers / stages; layer < (stage + 1) * layers / stages;
       ++layer) {
    add_dense(shard, layer_name(layer), place % tp, tp);
    add_experts(shard, layer_name(layer), place / cuts * (experts / groups), experts / groups,
                place % cuts, cuts);
  }
  if (stage + 1 == stages) {
    shard.whole("model.norm.weight", {hidden});
    shard.part("lm_head.weight", {vocabulary, hidden}, 0, place % tp, tp);
  }
  return shard.finish();
}

std::vector<Manifest> manifests_of(std::int64_t cuts) {
  const Inventory whole = inventory();
  std::vector<Manifest> manifests;
  for (std::uint32_t replica = 0; replica < 8; ++replica) {
    for (std::uint32_t rank = 0; rank < 128; ++rank) {
      manifests.push_back(trainer_shard(replica, rank, cuts, whole));
    }
  }
  for (std::uint32_t replica = 0; replica < 32; ++replica) {
    for (std::uint32_t rank = 0; rank < 16; ++rank) {
      manifests.push_back(rollout_shard(replica, rank, whole));
    }
  }
  return manifests;
}

/// In MiB. The peak is the process's since its start, or since `reset_peak`.
double memory_mib(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == field) {
      double kib = 0;
      status >> kib;
      return kib / 1024;
    }
  }
  return 0;
}

void reset_peak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

/// Of this thread, which does all the work: on a busy machine it is what one free core would take.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// Processor time and memory from its making on.
class Meter {
 public:
  Meter() {
    reset_peak();
    memory_start_ = memory_mib("VmRSS:");
    start_ = std::chrono::steady_clock::now();
    processor_start_ = processor_seconds();
  }
  [[nodiscard]] double processor() const { return processor_seconds() - processor_start_; }
  [[nodiscard]] double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  [[nodiscard]] double peak_mib() const { return memory_mib("VmHWM:") - memory_start_; }

 private:
  double memory_start_ = 0;
  double processor_start_ = 0;
  std::chrono::steady_clock::time_point start_;
};

/// The value, or the end of the program with the error.
template <typename T>
T valued(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "plan_bench: %s\n", result.error().text.c_str());
  std::exit(1);
}

/// The busiest source's bytes over the mean of all.
double imbalance(const Plan& plan) {
  std::vector<std::uint64_t> served(plan.sources.size());
  std::uint64_t all = 0;
  for (const PlanPart& part : plan.parts) {
    for (const Copy& copy : part.copies) {
      served[copy.source] += source_bytes(copy);
      all += source_bytes(copy);
    }
  }
  return static_cast<double>(*std::max_element(served.begin(), served.end())) *
         static_cast<double>(served.size()) / static_cast<double>(all);
}

std::size_t copies_in(const Plan& plan) {
  std::size_t copies = 0;
  for (const PlanPart& part : plan.parts) copies += part.copies.size();
  return copies;
}

void measure(Report& report, const std::string& name, std::int64_t cuts) {
  const std::vector<Manifest> manifests = manifests_of(cuts);
  std::size_t pieces = 0;
  for (const Manifest& manifest : manifests) pieces += manifest.pieces.size();

  const Meter meter;
  const Plan plan = valued(make_plan(manifests));
  const double seconds = meter.processor();
  const double elapsed = meter.elapsed();
  const double memory = meter.peak_mib();

  report.add({name + ", pieces", static_cast<double>(pieces), "pieces", "", 0});
  report.add({name + ", make_plan, processor", seconds, "s", "goal 1 s", seconds});
  report.add({name + ", make_plan, elapsed", elapsed, "s", "", 0});
  report.add({name + ", copies", static_cast<double>(copies_in(plan)), "copies", "", 0});
  report.add({name + ", pieces planned", static_cast<double>(pieces) / seconds, "1/s", "", 0});
  report.add({name + ", peak memory of planning", memory, "MiB", "", 0});
  report.add({name + ", busiest source over mean", imbalance(plan), "", "", 0});
  report.add({name + ", rollout manifest encoded",
              static_cast<double>(encode(manifests.back()).size()) / 1e6, "MB", "", 0});
  report.add(
      {name + ", plan encoded", static_cast<double>(encode(plan).size()) / 1e6, "MB", "", 0});
}

/// The shards of an exchange. Equal ones share a manifest.
struct Members {
  std::deque<Manifest> manifests;  ///< Never moved: participants point to them.
  std::vector<Participant> participants;

  void add(const Model& model, const char* spec, Side side, std::uint32_t replicas) {
    const Layout layout = valued(Layout::of(model, valued(parse_layout(spec))));
    const std::uint32_t ranks = layout.size().ranks;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      ShardId shard{side, 0, rank};
      manifests.push_back(
          place(model, valued(layout.rank(rank)), shard, ranks, RegionKind::host_shared).manifest);
      for (; shard.replica < replicas; ++shard.replica) {
        participants.push_back({shard, &manifests.back()});
      }
    }
  }
};

Model model_of_layers(std::int64_t layer_count) {
  ModelConfig config = valued(named_config("deepseek-v3"));
  config.num_hidden_layers = layer_count;
  config.experts.first_layer = 0;
  return valued(model_of(config));
}

/// Manifests and plan for that model.
struct Planned {
  Members members;
  Plan plan;

  explicit Planned(const Model& model) {
    members.add(model, "megatron:ep=64,pp=4", Side::trainer, 4);
    members.add(model, "vllm:tp=16", Side::rollout, 64);
    plan = valued(make_plan(members.participants));
  }
  /// Of all different manifests.
  [[nodiscard]] double pieces() const {
    std::size_t pieces = 0;
    for (const Manifest& manifest : members.manifests) pieces += manifest.pieces.size();
    return static_cast<double>(pieces);
  }
};

void measure_whole(Report& report, std::int64_t layer_count) {
  const std::string name = "manifests and plan, 1024 to 1024 shards";
  const Model model = model_of_layers(layer_count);
  const Meter meter;
  const Planned planned(model);
  const double seconds = meter.processor();
  const double elapsed = meter.elapsed();
  const double memory = meter.peak_mib();
  double trainer_bytes = 0;
  double rollout_bytes = 0;
  for (const Manifest& manifest : planned.members.manifests) {
    const bool trainer = manifest.shard.side == Side::trainer;
    (trainer ? trainer_bytes : rollout_bytes) += static_cast<double>(encode(manifest).size());
  }
  const auto copies = static_cast<double>(copies_in(planned.plan));
  Plan part;
  part.parts = {planned.plan.parts.front()};
  report.add({name + ", processor", seconds, "s", "goal 1 s", seconds});
  report.add({name + ", elapsed", elapsed, "s", "", 0});
  report.add({name + ", peak memory", memory, "MiB", "goal 1024 MiB", memory / 1024});
  report.add({name + ", pieces of one replica each", planned.pieces(), "pieces", "", 0});
  report.add({name + ", copies", copies, "copies", "", 0});
  report.add({name + ", busiest source over mean", imbalance(planned.plan), "", "", 0});
  report.add({"the same, manifests of a trainer replica", trainer_bytes / 1e6, "MB", "", 0});
  report.add({"the same, manifests of a rollout replica", rollout_bytes / 1e6, "MB", "", 0});
  const double part_bytes = static_cast<double>(encode(part).size());
  report.add({"the same, one shard's part of the plan", part_bytes / 1e6, "MB", "", 0});
}

/// One star a size: in a straight line from the corner where time grows as pieces do.
void measure_growth(Report& report) {
  constexpr std::int64_t layers_step = 8;
  constexpr std::int64_t layers_most = 64;
  constexpr double columns = 48;
  double first = 0;
  double column_seconds = 0;
  std::vector<std::pair<double, double>> points;
  for (std::int64_t count = layers_step; count <= layers_most; count += layers_step) {
    const Model model = model_of_layers(count);
    const Meter meter;
    const Planned planned(model);
    points.emplace_back(planned.pieces(), meter.processor());
    const double each = points.back().second / points.back().first * 1e9;
    if (first == 0) first = each;
    report.add({"the same, " + std::to_string(count) + " layers", each, "ns/piece",
                "the fewest layers'", each / first});
    column_seconds = std::max(column_seconds, points.back().second / columns);
  }
  if (report.json()) return;
  std::printf("manifests and plan, processor seconds by pieces\n");
  for (const auto& [pieces, seconds] : points) {
    std::printf("  %8.0f |%*s  %.2f s\n", pieces, 1 + static_cast<int>(seconds / column_seconds),
                "*", seconds);
  }
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  weir::Report report(argc, argv);
  weir::measure_whole(report, 60);
  weir::measure(report, "expert parallel", 1);
  weir::measure(report, "experts cut", 8);
  weir::measure_growth(report);
  return report.print();
}
