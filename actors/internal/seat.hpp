#pragma once
// A shard's place in its exchange: how trainer and rollout shards find it, join it, lose it, join
// again, and end.

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "actors/internal/errors.hpp"
#include "actors/internal/shards.hpp"
#include "runtime/codec.hpp"

namespace weir {

/// Part of a shard's actor `Self`, which it outlives neither way.
template <class Self>
class Seat {
 public:
  /// What the shard does about it. `status` is asked for at every join.
  struct Shard {
    std::function<MemberStatus()> status;
    std::function<void(std::uint64_t seat)> seated;
    /// The exchange is gone or has lost its memory: stop what it ordered, then call `join`.
    std::function<void()> lost;
    /// It is about to quit: answer whoever still waits, since nobody else will.
    std::function<void()> leaving;
  };

  Seat(Self self, const ShardConfig& config, Shard shard)
      : self_(self), config_(config), shard_(std::move(shard)) {
    self_->link_to(config_.finder);
    self_->link_to(config_.engine);
    if (config_.transport) self_->link_to(config_.transport);
    self_->set_down_handler([this](const caf::down_msg& down) {
      if (exchange_ && down.source == exchange_->address()) lose();
    });
    patience_ = config_.connect_deadline;
  }
  ~Seat() { report(failure(ErrorCode::unavailable, text_of(config_.shard) + " was killed")); }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  /// Looks for the exchange and joins it, for as long as its patience lasts.
  void join() {
    if (left_) return;
    const std::uint64_t attempt = ++attempt_;
    if (until_ == Time{}) until_ = self_->clock().now() + patience_;
    const Duration left = until_ - self_->clock().now();
    if (left <= Duration::zero()) return give_up("no answer");
    self_->request(config_.finder, left + find_grace, FindAtom::value, left)
        .then(
            [this, attempt](const JoinActor& exchange) {
              if (attempt == attempt_) ask(exchange);
            },
            [this, attempt](caf::error& error) {
              if (attempt == attempt_) give_up(from_caf(error).text);
            });
  }

  /// The exchange says, or is seen, to be gone.
  void lose() {
    if (left_) return;
    exchange_.reset();
    seated_ = false;
    ++attempt_;
    until_ = {};
    patience_ = config_.reconnect_deadline;
    shard_.lost();
  }

  /// Tells the host program why, and quits. The actors that are linked to the shard follow.
  void leave(Result<void> why) {
    left_ = true;
    shard_.leaving();
    report(std::move(why));
    self_->quit(caf::exit_reason::user_shutdown);
  }

  /// A place where a shard may lose sight of its exchange.
  void lose_if_struck(std::string_view place) {
    if (strikes(config_.buggify, place)) lose();
  }

  /// For an engine that missed its deadline: what it does after that is unknown, so that nothing
  /// can be built on it any more. Whoever `asked` is told first.
  template <class Promise>
  void leave_late_engine(Promise& asked, Duration deadline) {
    const Error why{
        ErrorCode::timeout,
        text_of(config_.shard) + " has an engine that did not answer within " + text_of(deadline)};
    asked.deliver(to_caf(why));
    leave(failure(why.code, why.text));
  }

  [[nodiscard]] const ShardConfig& config() const noexcept { return config_; }
  /// Null while there is none that this shard has a seat of.
  [[nodiscard]] const JoinActor* exchange() const noexcept {
    return seated_ ? &*exchange_ : nullptr;
  }

  /// It is time to try again.
  void retry(std::uint64_t attempt) {
    if (attempt == attempt_) join();
  }

 private:
  using Time = caf::actor_clock::time_point;

  void ask(const JoinActor& exchange) {
    exchange_ = exchange;
    self_->monitor(exchange);
    const std::uint64_t attempt = attempt_;
    self_->request(exchange, answer_deadline, JoinAtom::value, config_.manifest, shard_.status())
        .then(
            [this, attempt](const Seated& seated) {
              if (attempt != attempt_) return;
              seated_ = ever_seated_ = true;
              until_ = {};
              shard_.seated(seated.seat);
            },
            [this, attempt](caf::error& error) {
              if (attempt != attempt_) return;
              refused(from_caf(error), is_death(error));
            });
  }

  void refused(const Error& why, bool died) {
    // One that is not ready for this member yet may be later.
    if (!died && why.code != ErrorCode::unavailable && why.code != ErrorCode::timeout) {
      return leave(failure(why.code, text_of(config_.shard) + " can't join: " + why.text));
    }
    if (self_->clock().now() + retry_interval >= until_) return give_up(why.text);
    exchange_.reset();
    const std::uint64_t attempt = ++attempt_;
    self_->delayed_send(self_, retry_interval, RetryAtom::value, attempt);
  }

  void give_up(const std::string& why) {
    const std::string who = text_of(config_.shard);
    leave(failure(ErrorCode::unavailable,
                  ever_seated_
                      ? who + " lost its exchange, and does not find it within " +
                            text_of(patience_) + ": " + why
                      : who + " finds no exchange within " + text_of(patience_) + ": " + why));
  }

  void report(Result<void> why) {
    if (config_.on_end) std::exchange(config_.on_end, nullptr)(std::move(why));
  }

  static constexpr Duration retry_interval = std::chrono::milliseconds(100);
  static constexpr Duration find_grace = std::chrono::seconds(1);

  Self self_;
  ShardConfig config_;
  Shard shard_;
  std::optional<JoinActor> exchange_;
  bool seated_ = false;
  bool ever_seated_ = false;
  bool left_ = false;
  std::uint64_t attempt_ = 0;  ///< Answers to earlier ones say nothing.
  Time until_{};
  Duration patience_{};
};

/// A plan as it came from the exchange.
inline Result<Plan> plan_of(const Payload& payload) {
  return decode_plan(std::as_bytes(std::span(payload.bytes)));
}

}  // namespace weir
