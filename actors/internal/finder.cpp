#include "actors/internal/finder.hpp"

#include <set>

#include "actors/internal/errors.hpp"

namespace weir {
namespace {

constexpr Duration retry_interval = std::chrono::milliseconds(100);

class Finder {
 public:
  /// With what it says to itself when it is time to try again.
  using Actor = FinderActor::extend<caf::reacts_to<RetryAtom, std::uint64_t>>;
  using Self = Actor::stateful_pointer<Finder>;
  using Promise = caf::typed_response_promise<JoinActor>;
  static constexpr const char* name = "finder";

  explicit Finder(Self self) : self_(self) {}

  Actor::behavior_type serve(const std::string& host, std::uint16_t port) {
    host_ = host;
    port_ = port;
    wanted_ = self_->system().message_types(caf::detail::type_list<JoinActor>{});
    return {
        [this](FindAtom, Duration deadline) {
          // Only the last question counts: its asker has given up the ones before.
          promise_ = self_->make_response_promise<Promise>();
          until_ = self_->clock().now() + deadline;
          trouble_ = "no answer";
          connect(++number_);
          return promise_;
        },
        [this](RetryAtom, std::uint64_t number) { connect(number); },
    };
  }

 private:
  /// The connection is made by the middleman's actor, since a peer that accepts it and says
  /// nothing would hold up whoever waits for it.
  void connect(std::uint64_t number) {
    if (number != number_) return;
    const Duration left = until_ - self_->clock().now();
    if (left <= Duration::zero()) {
      promise_.deliver(to_caf({ErrorCode::unavailable, trouble_}));
      return;
    }
    self_
        ->request(self_->system().middleman().actor_handle(), left, caf::connect_atom::value, host_,
                  port_)
        .then(
            [this, number](const caf::node_id&, const caf::strong_actor_ptr& actor,
                           const std::set<std::string>& offered) {
              if (number != number_) return;
              if (actor && offered == wanted_) {
                promise_.deliver(caf::actor_cast<JoinActor>(actor));
              } else {
                try_later(number, "something else answers there");
              }
            },
            [this, number](caf::error& error) {
              if (number == number_) try_later(number, from_caf(error).text);
            });
  }

  void try_later(std::uint64_t number, const std::string& trouble) {
    trouble_ = trouble + " at " + host_ + ":" + std::to_string(port_);
    self_->delayed_send(self_, retry_interval, RetryAtom::value, number);
  }

  Self self_;
  std::string host_;
  std::uint16_t port_ = 0;
  std::set<std::string> wanted_;
  std::uint64_t number_ = 0;
  caf::actor_clock::time_point until_{};
  std::string trouble_;
  Promise promise_;
};

}  // namespace

FinderActor spawn_finder(caf::actor_system& system, const std::string& host, std::uint16_t port) {
  return system.spawn([](Finder::Self self, const std::string& where,
                         std::uint16_t door) { return self->state.serve(where, door); },
                      host, port);
}

}  // namespace weir
