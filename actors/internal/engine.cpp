#include "actors/internal/engine.hpp"

#include <map>

#include "actors/internal/errors.hpp"
#include "actors/internal/inbox.hpp"

namespace weir {
namespace {

class Engine {
 public:
  using Self = EngineActor::stateful_pointer<Engine>;
  using Promise = caf::typed_response_promise<std::uint64_t>;
  static constexpr const char* name = "engine";

  explicit Engine(Self self)
      : self_(self), inbox_(std::make_shared<Inbox<EngineActor>>(EngineActor{self})) {}
  ~Engine() { inbox_->close(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  EngineActor::behavior_type serve(const MemberHooks& hooks) {
    return {
        [this, hook = hooks.update](UpdateAtom, const EngineOrder& order) {
          return call(hook, order);
        },
        [this, hook = hooks.pause](PauseAtom, const EngineOrder& order) {
          return call(hook, order);
        },
        [this, hook = hooks.install](InstallAtom, const EngineOrder& order) {
          return call(hook, order);
        },
        [this, hook = hooks.resume](ResumeAtom, const EngineOrder& order) {
          return call(hook, order);
        },
        [this, hook = hooks.verify](VerifyAtom, const EngineOrder& order) {
          return call(hook, order);
        },
        [this](DoneAtom, std::uint64_t number, const HookOutcome& outcome) {
          finish(number, outcome.result);
        },
    };
  }

 private:
  struct Call {
    std::uint64_t version;
    Promise promise;
  };

  Promise call(const MemberHooks::Hook& hook, const EngineOrder& order) {
    auto promise = self_->make_response_promise<Promise>();
    if (!hook) return promise.deliver(order.version);
    const std::uint64_t number = next_call_++;
    calls_.emplace(number, Call{order.version, promise});
    hook({order.version, order.slot, order.in_flight},
         [inbox = inbox_, number](Result<void> result) {
           inbox->send(DoneAtom::value, number, HookOutcome{std::move(result)});
         });
    return promise;
  }

  /// A second `done` of one call finds nothing to finish.
  void finish(std::uint64_t number, const Result<void>& result) {
    const auto found = calls_.find(number);
    if (found == calls_.end()) return;
    Call call = std::move(found->second);
    calls_.erase(found);
    if (result) {
      call.promise.deliver(call.version);
    } else {
      call.promise.deliver(to_caf(result.error()));
    }
  }

  Self self_;
  std::shared_ptr<Inbox<EngineActor>> inbox_;
  std::map<std::uint64_t, Call> calls_;
  std::uint64_t next_call_ = 1;
};

}  // namespace

EngineActor spawn_engine(caf::actor_system& system, const MemberHooks& hooks) {
  return system.spawn(
      [](Engine::Self self, const MemberHooks& own) { return self->state.serve(own); }, hooks);
}

}  // namespace weir
