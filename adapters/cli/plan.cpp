// `weir plan`: what a fetch would move, without a byte of weights.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "adapters/cli/layout_argument.hpp"
#include "adapters/cli/model_argument.hpp"
#include "adapters/cli/progress.hpp"
#include "adapters/cli/verb.hpp"
#include "runtime/conversion_sides.hpp"
#include "runtime/planner.hpp"

namespace weir::cli {
namespace {

/// A side with more shards than this is shown by its largest and smallest few.
constexpr std::size_t shown_max = 16;
constexpr std::size_t shown_ends = 6;
constexpr int bar_columns = 24;

struct PlanArguments {
  std::string model;
  std::string train;
  std::string rollout;
  std::uint32_t replicas = 1;
  bool all = false;
  bool json = false;
};

struct ShardBytes {
  ShardId shard;
  std::uint64_t bytes = 0;
};

/// One side of the plan: bytes sent by each source, or received by each target.
struct SideBytes {
  std::vector<ShardBytes> shards;

  [[nodiscard]] std::uint64_t largest() const {
    std::uint64_t bytes = 0;
    for (const ShardBytes& shard : shards) bytes = std::max(bytes, shard.bytes);
    return bytes;
  }
  /// 1 is perfect balance; 0 where nothing moves.
  [[nodiscard]] double largest_over_mean() const {
    double total = 0;
    for (const ShardBytes& shard : shards) total += static_cast<double>(shard.bytes);
    if (total == 0) return 0;
    return static_cast<double>(largest()) * static_cast<double>(shards.size()) / total;
  }
};

struct PlanSummary {
  SideBytes sources;
  SideBytes targets;
  std::uint64_t bytes = 0;  ///< Into all targets.
  std::size_t copies = 0;
  std::uint64_t tensors_at_source = 0;  ///< Converted there.
  std::uint64_t tensors_at_target = 0;
  std::chrono::nanoseconds took{0};
};

/// Who takes part, and what each rank of a replica states, which all replicas share.
struct Members {
  std::deque<Manifest> manifests;  ///< Never moved, since participants point to them.
  std::vector<Participant> participants;
};

/// Adds all replicas of a layout.
Result<void> add_members(const Model& model, const LayoutSpec& spec, Side side,
                         std::uint32_t replicas, Members& members) {
  const auto layout = Layout::of(model, spec);
  if (!layout) return failure(layout);
  const LayoutSize& size = layout->size();
  for (std::uint32_t rank = 0; rank < size.ranks; ++rank) {
    const auto kept = layout->rank(rank);
    if (!kept) return failure(kept);
    ShardId shard{.side = side, .replica = 0, .rank = rank};
    const Manifest& manifest = members.manifests.emplace_back(
        place(layout->model(), *kept, shard, size.ranks, RegionKind::host_private).manifest);
    for (; shard.replica < size.replicas * replicas; ++shard.replica) {
      members.participants.push_back({shard, &manifest});
    }
  }
  return {};
}

/// Makes of live weights and engines' memory, where values are kept differently, what is published
/// and received. Types alone, which copies convert on their way, are left to them.
Result<ConversionSides> convert(Members& members) {
  const auto plain = [](const Manifest& manifest) { return manifest.encodings.empty(); };
  if (std::all_of(members.manifests.begin(), members.manifests.end(), plain)) {
    return ConversionSides{};
  }
  std::vector<Manifest> live;
  std::vector<Manifest> engines;
  for (const Manifest& manifest : members.manifests) {
    (manifest.shard.side == Side::trainer ? live : engines).push_back(manifest);
  }
  auto sides = choose_conversion_sides(live, engines);
  if (!sides) return sides;
  std::map<const Manifest*, const Manifest*> made;
  std::size_t next = 0;
  for (const Manifest& manifest : members.manifests) {
    const bool source = next < sides->published.size();
    made[&manifest] =
        source ? &sides->published[next] : &sides->received[next - sides->published.size()];
    ++next;
  }
  for (Participant& participant : members.participants) {
    participant.manifest = made.at(participant.manifest);
  }
  return sides;
}

PlanSummary summary_of(const Plan& plan) {
  PlanSummary summary;
  for (const PlanSource& source : plan.sources) summary.sources.shards.push_back({source.shard, 0});
  for (const PlanPart& part : plan.parts) {
    ShardBytes target{.shard = part.target};
    for (const Copy& copy : part.copies) {
      target.bytes += target_bytes(copy);
      summary.sources.shards[copy.source].bytes += source_bytes(copy);
    }
    summary.bytes += target.bytes;
    summary.copies += part.copies.size();
    summary.targets.shards.push_back(target);
  }
  return summary;
}

void print_shard(const ShardBytes& shard, std::uint64_t largest, std::ostream& out) {
  const double fraction =
      largest == 0 ? 0 : static_cast<double>(shard.bytes) / static_cast<double>(largest);
  std::string name = text_of(shard.shard);
  name.resize(std::max<std::size_t>(name.size(), 16), ' ');
  std::string bytes = bytes_text(static_cast<double>(shard.bytes));
  bytes.insert(0, bytes.size() < 8 ? 8 - bytes.size() : 0, ' ');
  out << "  " << name << bytes << "  " << bar_text(fraction, bar_columns) << "\n";
}

void print_side(const std::string& title, const SideBytes& side, bool all, std::ostream& out) {
  std::array<char, 32> ratio{};
  std::snprintf(ratio.data(), ratio.size(), "%.3f", side.largest_over_mean());
  out << "\n" << title << ", largest over mean " << ratio.data() << "\n";
  const std::uint64_t largest = side.largest();
  if (all || side.shards.size() <= shown_max) {
    for (const ShardBytes& shard : side.shards) print_shard(shard, largest, out);
    return;
  }
  std::vector<ShardBytes> sorted = side.shards;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const ShardBytes& a, const ShardBytes& b) { return a.bytes > b.bytes; });
  for (std::size_t i = 0; i < shown_ends; ++i) print_shard(sorted[i], largest, out);
  out << "  … " << sorted.size() - 2 * shown_ends << " more (--all shows them)\n";
  for (std::size_t i = sorted.size() - shown_ends; i < sorted.size(); ++i) {
    print_shard(sorted[i], largest, out);
  }
}

void print_table(const PlanArguments& arguments, const Model& model, const Plan& plan,
                 const PlanSummary& summary, std::ostream& out) {
  out << "model     " << arguments.model << ": " << model.tensors.size() << " tensors, "
      << bytes_text(static_cast<double>(bytes_of(model))) << "\n"
      << "train     " << arguments.train << ": " << summary.sources.shards.size() << " shards\n"
      << "rollout   " << arguments.rollout << ", " << arguments.replicas
      << (arguments.replicas == 1 ? " replica: " : " replicas: ") << summary.targets.shards.size()
      << " shards\n"
      << "plan      " << summary.copies << " copies, "
      << bytes_text(static_cast<double>(summary.bytes)) << ", made in "
      << duration_text(summary.took) << "\n"
      << "digest    " << text_of(plan.digest) << "\n";
  if (summary.tensors_at_source + summary.tensors_at_target > 0) {
    out << "convert   " << summary.tensors_at_source << " tensors at the source, "
        << summary.tensors_at_target << " at the target\n";
  }
  if (!plan.unused.empty()) {
    out << "unused    " << plan.unused.size() << " tensors that no rollout shard needs:";
    const std::size_t shown = arguments.all ? plan.unused.size() : shown_ends;
    for (std::size_t i = 0; i < std::min(shown, plan.unused.size()); ++i) {
      out << " " << plan.unused[i];
    }
    out << (shown < plan.unused.size() ? " … (--all shows them)\n" : "\n");
  }
  print_side("bytes out of each source", summary.sources, arguments.all, out);
  print_side("bytes into each target", summary.targets, arguments.all, out);
}

nlohmann::json json_of(const SideBytes& side) {
  nlohmann::json shards = nlohmann::json::array();
  for (const ShardBytes& shard : side.shards) {
    shards.push_back(
        {{"replica", shard.shard.replica}, {"rank", shard.shard.rank}, {"bytes", shard.bytes}});
  }
  return {{"shards", std::move(shards)}, {"largest_over_mean", side.largest_over_mean()}};
}

void print_json(const PlanArguments& arguments, const Model& model, const Plan& plan,
                const PlanSummary& summary, std::ostream& out) {
  const nlohmann::json json = {{"model", arguments.model},
                               {"tensors", model.tensors.size()},
                               {"model_bytes", bytes_of(model)},
                               {"train", arguments.train},
                               {"rollout", arguments.rollout},
                               {"replicas", arguments.replicas},
                               {"sources", json_of(summary.sources)},
                               {"targets", json_of(summary.targets)},
                               {"bytes", summary.bytes},
                               {"copies", summary.copies},
                               {"converted_at_source", summary.tensors_at_source},
                               {"converted_at_target", summary.tensors_at_target},
                               {"unused", plan.unused},
                               {"digest", text_of(plan.digest)},
                               {"seconds", std::chrono::duration<double>(summary.took).count()}};
  // A model's name comes from the command line and may be any bytes.
  out << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

Result<void> run(const PlanArguments& arguments, Console& console) {
  const auto train = layout_argument("--train", arguments.train);
  if (!train) return failure(train);
  const auto rollout = layout_argument("--rollout", arguments.rollout);
  if (!rollout) return failure(rollout);
  const auto model = model_argument(arguments.model);
  if (!model) return failure(model);

  const std::chrono::nanoseconds start = console.clock.now();
  Members members;
  auto added = add_members(*model, *train, Side::trainer, 1, members);
  if (!added) return added;
  added = add_members(*model, *rollout, Side::rollout, arguments.replicas, members);
  if (!added) return added;
  const auto sides = convert(members);
  if (!sides) return failure(sides);
  const auto plan = make_plan(members.participants);
  if (!plan) return failure(plan);
  PlanSummary summary = summary_of(*plan);
  summary.tensors_at_source = sides->tensors_at_source;
  summary.tensors_at_target = sides->tensors_at_target;
  summary.took = console.clock.now() - start;
  if (arguments.json) {
    print_json(arguments, *model, *plan, summary, console.out);
  } else {
    print_table(arguments, *model, *plan, summary, console.out);
  }
  return {};
}

}  // namespace

Action declare_plan(CLI::App& app) {
  auto arguments = std::make_shared<PlanArguments>();
  app.add_option("MODEL", arguments->model,
                 "folder with config.json, checkpoint, or a known name such as qwen3-0.6b")
      ->required();
  app.add_option("--train", arguments->train, "the trainer's layout, such as megatron:tp=2,pp=2")
      ->required()
      ->type_name("LAYOUT");
  app.add_option("--rollout", arguments->rollout, "the rollout's layout, such as vllm:tp=4")
      ->required()
      ->type_name("LAYOUT");
  app.add_option("--replicas", arguments->replicas, "rollout replicas")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_flag("--all", arguments->all, "show every shard, however many there are");
  app.add_flag("--json", arguments->json, "print one JSON object");
  return [arguments](Console& console) { return run(*arguments, console); };
}

}  // namespace weir::cli
