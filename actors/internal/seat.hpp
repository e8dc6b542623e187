#pragma once
// A shard's place in its exchange: how trainer and rollout shards join it and how they end.

#include <span>
#include <utility>

#include "actors/internal/errors.hpp"
#include "actors/internal/shards.hpp"
#include "runtime/codec.hpp"

namespace weir {

/// Part of a shard's actor `Self`, which it outlives neither way.
template <class Self>
class Seat {
 public:
  Seat(Self self, const ShardConfig& config) : self_(self), config_(config) {}
  ~Seat() { report(failure(ErrorCode::unavailable, text_of(config_.shard) + " was killed")); }
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;

  void join() {
    self_->link_to(config_.engine);
    if (config_.transport) self_->link_to(config_.transport);
    self_->set_down_handler([this](const caf::down_msg&) {
      leave(failure(ErrorCode::unavailable, text_of(config_.shard) + " lost its exchange"));
    });
    self_->monitor(config_.exchange);
    self_->request(config_.exchange, answer_deadline, JoinAtom::value, config_.manifest)
        .then([](caf::ok_atom) {},
              [this](const caf::error& error) {
                const Error why = from_caf(error);
                leave(failure(why.code, text_of(config_.shard) + " can't join: " + why.text));
              });
    config_.manifest = {};
  }

  /// Tells the host program why, and quits. The actors that are linked to the shard follow.
  void leave(Result<void> why) {
    report(std::move(why));
    self_->quit(caf::exit_reason::user_shutdown);
  }

  [[nodiscard]] const ShardConfig& config() const noexcept { return config_; }

 private:
  void report(Result<void> why) {
    if (config_.on_end) std::exchange(config_.on_end, nullptr)(std::move(why));
  }

  Self self_;
  ShardConfig config_;
};

/// A plan as it came from the exchange.
inline Result<Plan> plan_of(const Payload& payload) {
  return decode_plan(std::as_bytes(std::span(payload.bytes)));
}

}  // namespace weir
