#include "adapters/cli/async_demo.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "actors/exchange.hpp"
#include "adapters/cli/async_board.hpp"
#include "adapters/cli/async_kills.hpp"
#include "adapters/cli/async_table.hpp"
#include "adapters/cli/child_processes.hpp"
#include "adapters/cli/held_signals.hpp"
#include "adapters/cli/stop_switch.hpp"

namespace weir::cli {
namespace {

using Time = std::chrono::nanoseconds;

constexpr int end_deadline_milliseconds = 10'000;
/// How often the exchange is asked how it goes, and the line drawn.
constexpr std::chrono::milliseconds look_interval{20};
constexpr std::chrono::milliseconds draw_interval{200};
/// Nothing happens for this long: something hangs.
constexpr std::chrono::seconds silence_most{60};

std::vector<ShardId> shards_of(const DemoSide& side) {
  std::vector<ShardId> shards;
  for (std::uint32_t replica = 0; replica < side.replicas; ++replica) {
    for (std::uint32_t rank = 0; rank < side.ranks; ++rank) {
      shards.push_back({side.side, replica, rank});
    }
  }
  return shards;
}

/// The first of them that happens, told from the thread that watches the processes.
class Trouble {
 public:
  explicit Trouble(StopSwitch& stop) : stop_(stop) {}

  void tell(const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      why_ = why;
    }
    stop_.stop();
  }
  [[nodiscard]] std::string why() {
    const std::lock_guard lock(mutex_);
    return why_;
  }

 private:
  StopSwitch& stop_;
  std::mutex mutex_;
  std::string why_;
};

/// One run, from the first process to the table.
class AsyncRun {
 public:
  AsyncRun(const AsyncDemoOptions& options, const Scene& scene, KillSchedule kills,
           Console& console)
      : options_(options), scene_(scene), kills_(std::move(kills)), console_(console) {}

  Result<void> play();

 private:
  Result<void> start_all();
  [[nodiscard]] std::vector<std::string> arguments(const ShardId& shard, std::uint64_t life,
                                                   std::uint64_t first_version) const;
  Result<void> watch_over();
  Result<void> carry_out_kills(Time now);
  /// Whether all that was asked for has come to pass.
  [[nodiscard]] bool done(Time now) const;
  Result<void> check_progress(Time now);
  void draw(Time now);
  [[nodiscard]] AsyncCounts counts() { return {scene_, status_, *board_, kills_, passed_}; }

  const AsyncDemoOptions& options_;
  const Scene& scene_;
  KillSchedule kills_;
  Console& console_;
  StopSwitch stop_;
  Trouble trouble_{stop_};
  std::atomic<bool> formed_ = false;  ///< All shards hold their plan.
  std::unique_ptr<AsyncBoard> board_;
  std::unique_ptr<Exchange> exchange_;
  ChildProcesses children_;
  ExchangeStatus status_;
  Time begun_at_{};
  Time passed_{};
  Time drawn_at_{};
  std::uint64_t progress_ = 0;
  Time progress_at_{};
  bool drawn_ = false;
};

std::vector<std::string> AsyncRun::arguments(const ShardId& shard, std::uint64_t life,
                                             std::uint64_t first_version) const {
  const DemoSide& side = shard.side == Side::trainer ? scene_.train : scene_.rollout;
  AsyncShard one;
  one.base = shard_of(scene_, side, shard, exchange_->port());
  one.base.private_memory = options_.private_memory;
  one.step = options_.step;
  one.decode = options_.decode;
  one.way = options_.way;
  one.early = !options_.late;
  one.placement = options_.placement;
  one.first_version = first_version;
  one.life = life;
  return arguments_of(one);
}

Result<void> AsyncRun::start_all() {
  auto board = AsyncBoard::make(scene_);
  if (!board) return failure(board);
  board_ = *std::move(board);
  ExchangeOptions exchange = exchange_options(scene_);
  exchange.follow = options_.follow;
  auto started = Exchange::start(exchange);
  if (!started) return failure(started);
  exchange_ = *std::move(started);
  for (const DemoSide* side : {&scene_.train, &scene_.rollout}) {
    for (const ShardId& shard : shards_of(*side)) {
      auto child = children_.start(text_of(shard), arguments(shard, 1, 1), board_->descriptor());
      if (!child) return child;
    }
  }
  return children_.watch([this](const std::string& why) {
    trouble_.tell(why);
    // Whoever waits for the exchange on this thread is let go.
    if (!formed_) exchange_->abort(why);
  });
}

Result<void> AsyncRun::play() {
  if (Result<void> started = start_all(); !started) return started;
  const Result<Plan> plan = exchange_->await_plan();
  if (!plan) return failure(plan);
  formed_ = true;
  introduce(scene_, *plan, console_);
  begun_at_ = progress_at_ = console_.clock.now();
  Result<void> watched = watch_over();
  passed_ = console_.clock.now() - begun_at_;
  if (std::exchange(drawn_, false)) console_.err << "\r\x1b[K" << std::flush;
  const std::string why = trouble_.why();
  const bool interrupted = why == ChildProcesses::interrupted;
  if (watched && !why.empty() && !interrupted) watched = failure(ErrorCode::unavailable, why);
  if (watched) {
    children_.stop_watching();
    exchange_.reset();
    watched = children_.expect_end(end_deadline_milliseconds);
  }
  print_table(console_.out, counts());
  if (!watched) return watched;
  if (interrupted) return failure(ErrorCode::unavailable, why);
  console_.out << "Everything that was served agreed with the independent reference.\n";
  return {};
}

Result<void> AsyncRun::watch_over() {
  while (true) {
    const Time now = console_.clock.now();
    passed_ = now - begun_at_;
    auto status = exchange_->status();
    if (!status) return failure(status);
    status_ = *std::move(status);
    if (auto carried = carry_out_kills(now); !carried) return carried;
    if (auto progress = check_progress(now); !progress) return progress;
    draw(now);
    if (done(now) || !stop_.wait(look_interval)) return {};
  }
}

Result<void> AsyncRun::carry_out_kills(Time now) {
  for (const Kill& kill : kills_.kills()) {
    const ShardId& shard = kill.order.shard;
    const bool serves = shard.side == Side::trainer || status_.replicas[shard.replica].in_service;
    if (serves) kills_.seen(shard, board_->record(shard).life, now);
  }
  for (const KillSchedule::Step& step : kills_.due(status_.ready, now)) {
    const Kill& kill = kills_.kills()[step.number];
    const std::size_t index = board_->index_of(kill.order.shard);
    if (step.act == KillSchedule::Act::kill) {
      children_.kill_one(index);
      continue;
    }
    auto again = children_.restart(index, arguments(kill.order.shard, kill.life, status_.ready + 1),
                                   board_->descriptor());
    if (!again) return again;
  }
  return {};
}

bool AsyncRun::done(Time now) const {
  if (kills_.pending()) return false;
  if (!options_.versions) return now - begun_at_ >= std::chrono::seconds(options_.seconds);
  return kills_.over() && status_.ready >= *options_.versions &&
         std::all_of(status_.replicas.begin(), status_.replicas.end(),
                     [this](const ReplicaStatus& replica) {
                       return replica.in_service && replica.version >= *options_.versions;
                     });
}

Result<void> AsyncRun::check_progress(Time now) {
  std::uint64_t progress = status_.ready;
  for (const ReplicaStatus& replica : status_.replicas) progress += replica.commits;
  if (progress != progress_) {
    progress_ = progress;
    progress_at_ = now;
  }
  if (now - progress_at_ < silence_most) return {};
  std::string text =
      "nothing has happened for a minute: version " + std::to_string(status_.ready) + " is ready";
  for (std::size_t i = 0; i < status_.replicas.size(); ++i) {
    const ReplicaStatus& replica = status_.replicas[i];
    text += ", replica " + std::to_string(i) +
            (replica.in_service ? " serves version " : " is out after version ") +
            std::to_string(replica.version);
    if (!replica.trouble.empty()) text += " (" + replica.trouble + ")";
  }
  return failure(ErrorCode::timeout, text);
}

void AsyncRun::draw(Time now) {
  if (!console_.terminal || (drawn_ && now - drawn_at_ < draw_interval)) return;
  std::string line = live_line(counts());
  // A line that wraps could not be drawn over.
  if (console_.columns > 1 && line.size() >= static_cast<std::size_t>(console_.columns)) {
    line.resize(static_cast<std::size_t>(console_.columns) - 1);
  }
  console_.err << "\r\x1b[K" << line << std::flush;
  drawn_ = true;
  drawn_at_ = now;
}

SceneCopies copies_of(const AsyncDemoOptions& options) {
  SceneCopies copies;
  // Two spare slots, and the live weights, which are twice as large where they are converted.
  if (options.way == PublishWay::snapshot) copies.trainer = 3;
  if (options.way == PublishWay::convert) copies.trainer = 4;
  if (options.placement != Placement::in_place) copies.rollout = 2;
  return copies;
}

}  // namespace

Result<void> run_async_demo(const AsyncDemoOptions& options, Console& console) {
  const HeldSignals signals;
  std::vector<KillOrder> orders;
  for (const std::string& text : options.kills) {
    const auto order = parse_kill(text);
    if (!order) return failure(order);
    orders.push_back(*order);
  }
  auto scene = set_scene(options.scene, copies_of(options), console, signals);
  if (!scene) return failure(scene);
  if (options.way == PublishWay::convert && !scene->train.spec.dtype) {
    scene->train.spec.dtype = ElementType::bf16;
  }
  auto kills = KillSchedule::make(orders, shards_of(scene->train), shards_of(scene->rollout),
                                  options.restart);
  if (!kills) return failure(kills);
  Result<void> played = AsyncRun(options, *scene, *std::move(kills), console).play();
  console.out << std::flush;
  // From here on the request was good: whatever a shard complains of is trouble.
  if (!played && played.error().code != ErrorCode::timeout) {
    return failure(ErrorCode::unavailable, played.error().text);
  }
  return played;
}

void add_async_options(CLI::App& app, AsyncDemoOptions& options) {
  static const std::map<std::string, PublishWay> ways = {{"pinned", PublishWay::pinned},
                                                         {"snapshot", PublishWay::snapshot},
                                                         {"convert", PublishWay::convert}};
  static const std::map<std::string, Placement> placements = {
      {"in-place", Placement::in_place},
      {"second-buffer", Placement::second_buffer},
      {"staging", Placement::staging}};
  static const std::map<std::string, Follow> follows = {{"finish", Follow::finish},
                                                        {"jump", Follow::jump}};
  CLI::Option* const async = app.add_flag(
      "--async", options.async, "trainers and rollouts go on at their own pace meanwhile");
  const auto milliseconds = [&app, async](const char* name, std::chrono::milliseconds& value,
                                          const char* what) {
    app.add_option_function<std::uint32_t>(
           name, [&value](std::uint32_t count) { value = std::chrono::milliseconds(count); },
           std::string(what) + " [" + std::to_string(value.count()) + "]")
        ->check(CLI::Range(0U, 30'000U))
        ->needs(async);
  };
  app.add_option("--seconds", options.seconds, "run for so long, unless --versions is given")
      ->check(CLI::Range(1U, 1'000'000U))
      ->capture_default_str()
      ->needs(async)
      ->excludes("--versions");
  milliseconds("--step-ms", options.step, "time of a training step");
  milliseconds("--decode-ms", options.decode, "time of a decode step");
  app.add_option("--publish", options.way,
                 "pinned: readers read live weights; snapshot: a copy [snapshot]; convert: a copy "
                 "of f32 in bf16")
      ->transform(CLI::CheckedTransformer(ways, CLI::ignore_case).description(""))
      ->needs(async);
  app.add_flag("--late", options.late,
               "copies are read when they are whole, and not while they are made")
      ->needs(async);
  app.add_option("--placement", options.placement,
                 "where rollouts fetch to: in-place, second-buffer [second-buffer] or staging")
      ->transform(CLI::CheckedTransformer(placements, CLI::ignore_case).description(""))
      ->needs(async);
  app.add_option("--follow", options.follow,
                 "what a replica does with a newer version while it fetches: finish [finish], jump")
      ->transform(CLI::CheckedTransformer(follows, CLI::ignore_case).description(""))
      ->needs(async);
  app.add_option("--kill", options.kills,
                 "SIDE[.REPLICA.RANK]@VERSION[+MS]: kill a process then, and start it again; "
                 "repeatable")
      ->needs(async)
      ->allow_extra_args(false);
  milliseconds("--restart-ms", options.restart, "until a process that was killed starts again");
}

}  // namespace weir::cli
