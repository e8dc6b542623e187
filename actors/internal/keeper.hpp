#pragma once
// How ledger and coordinators watch over the members that they give work to.

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/internal/errors.hpp"
#include "actors/internal/protocol.hpp"

namespace weir {

/// Part of an actor `Self`. Every trouble of a member goes to the supervisor, once, as a sentence
/// that names the shard and what it was doing (which `doing` tells).
template <class Self>
class Keeper {
 public:
  using Doing = std::function<std::string(const ShardId&)>;

  Keeper(Self self, SupervisorActor supervisor, const std::vector<Member>& members, Doing doing)
      : self_(self), supervisor_(std::move(supervisor)), doing_(std::move(doing)) {
    for (const Member& member : members) {
      shards_.emplace(member.handle->address(), member.shard);
      self_->monitor(member.handle);
    }
    self_->set_down_handler([this](const caf::down_msg& down) {
      const auto found = shards_.find(down.source);
      if (found == shards_.end()) return;
      fail(died(found->second, doing_(found->second)));
    });
  }

  /// A request to that member was not answered as it should be.
  void failed(const ShardId& shard, const caf::error& error, Duration deadline) {
    fail(member_failed(shard, doing_(shard), error, deadline));
  }

  void fail(const Error& error) { self_->send(supervisor_, FailAtom::value, error); }

 private:
  Self self_;
  SupervisorActor supervisor_;
  Doing doing_;
  std::map<caf::actor_addr, ShardId> shards_;
};

}  // namespace weir
