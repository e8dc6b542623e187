#include "actors/member.hpp"

#include <future>
#include <utility>

#include "actors/internal/engine.hpp"
#include "actors/internal/errors.hpp"
#include "actors/internal/shards.hpp"
#include "actors/internal/system.hpp"
#include "actors/internal/transport_worker.hpp"
#include "actors/membership.hpp"
#include "runtime/codec.hpp"

namespace weir {
namespace {

constexpr Duration retry_interval = std::chrono::milliseconds(100);

std::string address_of(const MemberOptions& options) {
  return options.host + ":" + std::to_string(options.port);
}

Result<void> check(const MemberOptions& options) {
  const std::string who = text_of(options.manifest.shard);
  if (options.transport == nullptr) {
    return failure(ErrorCode::invalid, who + " has no transport: set MemberOptions::transport");
  }
  if (options.regions.size() != options.manifest.regions.size()) {
    return failure(ErrorCode::invalid, who + " has " + std::to_string(options.regions.size()) +
                                           " regions, but its manifest lists " +
                                           std::to_string(options.manifest.regions.size()));
  }
  for (std::size_t i = 0; i < options.regions.size(); ++i) {
    const std::uint64_t bytes = options.regions[i]->bytes().size();
    const std::uint64_t listed = options.manifest.regions[i].bytes;
    if (bytes != listed) {
      return failure(ErrorCode::invalid, "region " + std::to_string(i) + " of " + who + " has " +
                                             std::to_string(bytes) +
                                             " bytes, but its manifest lists " +
                                             std::to_string(listed));
    }
  }
  if (options.manifest.shard.side == Side::trainer && !options.hooks.update) {
    return failure(ErrorCode::invalid, who + " needs an update hook");
  }
  if (options.connect_deadline <= Duration::zero()) {
    return failure(ErrorCode::invalid, "connect_deadline must be longer than nothing");
  }
  if (options.silence_max < silence_max_least) {
    return failure(ErrorCode::invalid, "silence_max must be at least 1 s");
  }
  return check(options.manifest);
}

/// Peers may read a trainer's regions from here until this is destroyed.
class Exposure {
 public:
  explicit Exposure(Transport& transport) : transport_(transport) {}
  ~Exposure() {
    for (const Region* region : exposed_) transport_.withdraw(*region);
  }
  Exposure(const Exposure&) = delete;
  Exposure& operator=(const Exposure&) = delete;

  /// Adds the ticket of every region to the manifest.
  Result<void> add(const std::vector<Region*>& regions, Manifest& manifest) {
    for (std::size_t i = 0; i < regions.size(); ++i) {
      auto ticket = transport_.expose(*regions[i]);
      if (!ticket) {
        return failure(ticket.error().code, text_of(manifest.shard) + " can't show region " +
                                                std::to_string(i) + ": " + ticket.error().text);
      }
      exposed_.push_back(regions[i]);
      manifest.regions[i].tickets.push_back(std::move(*ticket));
    }
    return {};
  }

 private:
  Transport& transport_;
  std::vector<const Region*> exposed_;
};

/// Tries until it succeeds or the deadline has passed: members may be started before their
/// exchange. The connection is made by the middleman's actor, since a peer that accepts it and says
/// nothing would hold up whoever waits for it.
Result<JoinActor> connect(caf::actor_system& system, const MemberOptions& options) {
  const caf::scoped_actor self(system);
  const auto until = system.clock().now() + options.connect_deadline;
  const auto wanted = system.message_types(caf::detail::type_list<JoinActor>{});
  std::string trouble = "no answer";
  while (true) {
    const Duration left = until - system.clock().now();
    if (left <= Duration::zero()) break;
    Result<JoinActor> found;
    self->request(system.middleman().actor_handle(), left, caf::connect_atom::value, options.host,
                  options.port)
        .receive(
            [&](const caf::node_id&, const caf::strong_actor_ptr& actor,
                const std::set<std::string>& offered) {
              if (actor && offered == wanted) found = caf::actor_cast<JoinActor>(actor);
            },
            [&trouble](caf::error& error) { trouble = from_caf(error).text; });
    if (found && *found) return found;
    self->delayed_send(self, retry_interval, JoinAtom::value);
    self->receive([](JoinAtom) {});
  }
  return failure(ErrorCode::unavailable,
                 text_of(options.manifest.shard) + " finds no exchange at " + address_of(options) +
                     " within " + text_of(options.connect_deadline) + ": " + trouble);
}

Result<void> serve(const MemberOptions& options, const Manifest& manifest) {
  auto payload = to_payload(encode(manifest), "the manifest of " + text_of(manifest.shard));
  if (!payload) return failure(payload);
  ActorSystemConfig config;
  caf::actor_system system(config.use_network(options.silence_max));
  auto exchange = connect(system, options);
  if (!exchange) return failure(exchange);

  std::promise<Result<void>> ended;
  auto outcome = ended.get_future();
  ShardConfig shard;
  shard.shard = manifest.shard;
  shard.manifest = std::move(*payload);
  shard.exchange = std::move(*exchange);
  shard.engine = spawn_engine(system, options.hooks);
  shard.on_end = [&ended](Result<void> why) { ended.set_value(std::move(why)); };
  if (manifest.shard.side == Side::trainer) {
    spawn_trainer(system, shard);
  } else {
    shard.transport = spawn_transport_worker(system, *options.transport, options.regions);
    spawn_rollout(system, shard);
  }
  // The shard ends by itself: the exchange has deadlines for everything, and its death is noticed.
  // The actor system then waits for the shard's other actors, and so for a running fetch.
  return outcome.get();
}

}  // namespace

Result<void> run_member(const MemberOptions& options) {
  if (const auto checked = check(options); !checked) return failure(checked);
  Manifest manifest = options.manifest;
  Exposure exposure(*options.transport);
  if (manifest.shard.side == Side::trainer) {
    const auto exposed = exposure.add(options.regions, manifest);
    if (!exposed) return failure(exposed);
  }
  return serve(options, manifest);
}

}  // namespace weir
