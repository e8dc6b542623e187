#include "actors/internal/sim_world.hpp"

#include <algorithm>

#include "actors/internal/errors.hpp"
#include "actors/internal/supervisor.hpp"
#include "runtime/assert.hpp"

namespace weir::sim {

using namespace std::chrono_literals;

World::World(std::uint64_t seed, const Scene& scene)
    : scene_(scene),
      net_(seed),
      bytes_([this](Duration delay,
                    std::function<void()> then) { net_.after(delay, std::move(then)); },
             net_.random()) {
  for (std::uint32_t replica = 0; replica < scene.exchange.rollout_replicas; ++replica) {
    engines_.push_back(std::make_unique<Engines>(*this));
  }
}

World::~World() {
  // Actors go before the memory that they write to.
  net_.end();
}

void World::start() {
  bytes_.set_link(scene_.link);
  start_exchange();
  const ExchangeOptions& options = scene_.exchange;
  const auto start_side = [this](Side side, std::uint32_t replicas, std::uint32_t ranks) {
    for (std::uint32_t replica = 0; replica < replicas; ++replica) {
      for (std::uint32_t rank = 0; rank < ranks; ++rank) start_host({side, replica, rank});
    }
  };
  start_side(Side::trainer, options.trainer_replicas, options.trainer_ranks);
  const std::uint32_t replicas = options.rollout_replicas - scene_.late_replicas;
  start_side(Side::rollout, replicas, options.rollout_ranks);
  for (std::uint32_t replica = 0; replica < replicas; ++replica) decode(replica);
}

void World::come(std::uint32_t replica) {
  for (std::uint32_t rank = 0; rank < scene_.exchange.rollout_ranks; ++rank) {
    start_host({Side::rollout, replica, rank});
  }
  decode(replica);
}

void World::start_exchange() {
  exchange_ = &net_.add_process("exchange");
  exchange_born_ = net_.now();
  ExchangeOptions options = scene_.exchange;
  options.buggify = buggify();
  supervisor_ = spawn_supervisor(exchange_->system(), options);
  exchange_->actors.push_back(caf::actor_cast<caf::strong_actor_ptr>(supervisor_));
  if (scene_.demand.batch == 0) return;
  // What an owner had going is gone with it, and so are batches that no version came of.
  for (const auto& engines : engines_) engines->drop(false);
  trainable_ = ready_;
  republished_ = newest_whole;
  if (owner_) former_owners_.push_back(std::move(owner_));
  owner_ = std::make_unique<Owner>(*this, *exchange_, supervisor_);
  owner_->start();
}

void World::start_host(const ShardId& shard) {
  Process& process = net_.add_process(text_of(shard));
  auto& place = hosts_[shard];
  if (place) former_.push_back(std::move(place));
  place = std::make_unique<Host>(*this, shard, process, next_number_++);
  if (shard.side == Side::trainer) republished_ = newest_whole;
  place->goal = std::max<std::uint64_t>(goal_max, 1);
  place->start();
}

bool World::step() {
  return !broken_ && net_.step() && !broken_;
}

bool World::run_until(const std::function<bool()>& done, Duration patience,
                      std::uint64_t steps_max) {
  const Duration until = net_.now() + patience;
  while (net_.now() < until && net_.steps() < steps_max) {
    if (done()) return true;
    if (!step()) return false;
  }
  return done();
}

// ---- what can go wrong -------------------------------------------------------------------------

void World::kill(Host& host, bool notice, Duration restart_after) {
  if (!host.process.alive) return;
  tell(text_of(host.shard) + " is killed");
  net_.kill(host.process, notice);
  bytes_.take_down(host.number);
  if (host.shard.side == Side::rollout) engines(host.shard.replica).drop(true);
  net_.after(restart_after, [this, shard = host.shard] {
    ++restarts;
    tell(text_of(shard) + " is started again");
    start_host(shard);
  });
}

void World::left(Host& host) {
  if (!host.process.alive) return;
  tell(text_of(host.shard) +
       " has ended: " + (*host.ended ? std::string("in good order") : host.ended->error().text));
  // Its code is the exchange's too.
  if (!*host.ended && host.ended->error().code == ErrorCode::invalid) {
    broke(text_of(host.shard) + " is said to have broken the rules");
  }
  kill(host, true, between(10ms, 2s));
}

void World::describe() {
  for (const auto& [shard, host] : hosts_) {
    std::string line = text_of(shard);
    if (!host->process.alive) line += " is dead";
    if (host->process.hung) line += " stands still";
    line += shard.side == Side::trainer ? " goes for version " + std::to_string(host->goal)
                                        : (host->running ? " runs version " : " holds version ") +
                                              std::to_string(host->version);
    tell(line);
  }
  if (owner_) {
    tell("trained from " + std::to_string(batches_) + " batches, enough for version " +
         std::to_string(trainable_ + 1) + ", as version " + std::to_string(ready_) +
         " is ready; samples: " + owner_->text());
  }
}

void World::hang(Host& host, Duration time) {
  if (!host.up()) return;
  tell(text_of(host.shard) + " stands still");
  net_.hang(host.process, time);
}

void World::cut(Host& host, Net::Way way, Duration time) {
  tell(text_of(host.shard) + " is cut off");
  net_.cut(host.process, way, time);
}

void World::starve(const ShardId& shard, Duration time) {
  tell(text_of(shard) + " gets no more memory");
  starved_[shard] = std::max(starved_[shard], net_.now() + time);
  bytes_.short_of_memory(host(shard)->number, true);
  net_.after(time, [this, shard] {
    const auto found = starved_.find(shard);
    if (found != starved_.end() && found->second <= net_.now()) feed(shard);
  });
}

void World::feed(const ShardId& shard) {
  starved_.erase(shard);
  bytes_.short_of_memory(host(shard)->number, false);
}

void World::kill_exchange(bool notice, Duration restart_after) {
  if (!exchange_->alive) return;
  tell("the exchange is killed");
  net_.kill(*exchange_, notice);
  net_.after(restart_after, [this] {
    ++restarts;
    tell("the exchange is started again");
    start_exchange();
  });
}

bool World::stall_actor(const std::optional<ShardId>& member, Duration time) {
  if (!net_.stall(member ? host(*member)->process : *exchange_, time)) return false;
  tell("an actor of " + (member ? text_of(*member) : "the exchange") + " has to wait");
  return true;
}

bool World::crash_actor(std::string_view name) {
  if (!exchange_->alive) return false;
  std::vector<caf::actor_addr> found;
  for (caf::resumable* job : exchange_->scheduler().jobs) {
    auto* actor = dynamic_cast<caf::scheduled_actor*>(job);
    if (actor == nullptr) continue;
    const std::string_view own = actor->name();
    if (name.empty() ? own != "supervisor" && own != "owner" : own == name) {
      found.push_back(actor->address());
    }
  }
  if (found.empty()) return false;
  tell("an actor of the exchange fails");
  caf::anon_send_exit(found[net_.random().below(found.size())],
                      caf::exit_reason::unhandled_exception);
  return true;
}

/// In each world about half of the places do anything, seldom or often.
Buggify World::buggify() {
  return [this](std::string_view place) {
    if (!scene_.buggify) return false;
    auto found = one_in_.find(place);
    if (found == one_in_.end()) {
      constexpr std::uint64_t frequencies[] = {0, 0, 4, 30};
      found = one_in_.emplace(place, frequencies[net_.random().below(4)]).first;
    }
    if (found->second == 0 || !net_.random().chance(1, found->second)) return false;
    ++strikes;
    tell(found->first);
    return true;
  };
}

// ---- what has to hold --------------------------------------------------------------------------

void World::broke(const std::string& invariant) {
  if (broken_) return;
  broken_ = invariant + " (at " + std::to_string(net_.now().count()) + " ns)";
  tell(*broken_);
}

void World::tell(const std::string& line) {
  if (narrate) {
    story.push_back(std::to_string(net_.now().count() / 1000) + " us: " + line);
  }
}

/// A trainer shard's host program has said that its bytes stand.
void World::given(const ShardId& trainer, std::uint64_t version) {
  auto& ranks = given_[{trainer.replica, version}];
  ranks.insert(trainer.rank);
  if (ranks.size() < scene_.exchange.trainer_ranks || !whole_.insert(version).second) return;
  newest_whole = std::max(newest_whole, version);
  tell("version " + std::to_string(version) + " is whole");
}

/// One replica generates, step by step, as long as all of its shards let it.
void World::decode(std::uint32_t replica) {
  net_.after(between(scene_.rest_most / 6, scene_.rest_most), [this, replica] {
    std::vector<Host*> ranks;
    bool runs = true;
    for (std::uint32_t rank = 0; rank < scene_.exchange.rollout_ranks; ++rank) {
      ranks.push_back(hosts_.at({Side::rollout, replica, rank}).get());
      runs = runs && ranks.back()->up() && ranks.back()->running;
    }
    if (!runs) return decode(replica);
    for (Host* host : ranks) host->stepping = true;
    net_.after(between(5ms, 20ms), [this, replica, ranks] { end_decode(replica, ranks); });
  });
}

void World::end_decode(std::uint32_t replica, const std::vector<Host*>& ranks) {
  const bool whole = std::all_of(ranks.begin(), ranks.end(), [](Host* host) { return host->up(); });
  if (whole) {
    ++decodes;
    const std::uint64_t version = ranks.front()->version;
    const std::string who = "rollout replica " + std::to_string(replica);
    for (const Host* host : ranks) {
      if (host->version != version) {
        broke(who + " serves versions " + std::to_string(version) + " and " +
              std::to_string(host->version) + " at once");
      }
      if (!model.holds(host->shard, scene_.exchange.rollout_ranks, version, host->live())) {
        broke(text_of(host->shard) + " serves bytes that are not those of version " +
              std::to_string(version));
      }
    }
    Served& last = served_[replica];
    if (version < last.version && !forgotten(replica, ranks)) {
      broke(who + " went back from version " + std::to_string(last.version) + " to " +
            std::to_string(version));
    }
    if (version != last.version) {
      ++commits;
      tell(who + " serves version " + std::to_string(version));
      last = {version, net_.now()};
    }
    if (!whole_.contains(version)) {
      broke(who + " serves version " + std::to_string(version) + ", which was never whole");
    }
    engines(replica).step(version);
  }
  for (Host* host : ranks) host->step_is_over();
  decode(replica);
}

bool World::forgotten(std::uint32_t replica, const std::vector<Host*>& ranks) const {
  const Duration then = served_.at(replica).at;
  return exchange_born_ > then && std::all_of(ranks.begin(), ranks.end(), [then](const Host* host) {
           return host->born > then;
         });
}

bool World::may_train(std::uint64_t version) {
  const bool batch = scene_.demand.batch == 0 || trainable_ >= ready_ || ready_ <= republished_;
  if (batch) permitted_ = std::max(permitted_, version);
  return version <= permitted_;
}

/// Numbers of versions may have gaps, which no batch has to fill.
void World::trained() {
  ++batches_;
  trainable_ = std::max(trainable_ + 1, ready_);
}

bool World::settled(std::uint64_t version) const {
  if (newest_whole < version) return false;
  for (std::uint32_t replica = 0; replica < scene_.exchange.rollout_replicas; ++replica) {
    const auto served = served_.find(replica);
    if (served == served_.end() || served->second.version < newest_whole) return false;
    for (std::uint32_t rank = 0; rank < scene_.exchange.rollout_ranks; ++rank) {
      const Host& host = *hosts_.at({Side::rollout, replica, rank});
      if (!host.up() || !host.running || host.version != newest_whole) return false;
    }
  }
  return true;
}

std::vector<Host*> World::hosts() const {
  std::vector<Host*> all;
  for (const auto& [shard, host] : hosts_) all.push_back(host.get());
  return all;
}

Host* World::host(const ShardId& shard) const {
  return hosts_.at(shard).get();
}

Duration World::between(Duration least, Duration most) {
  return Duration(net_.random().between(least.count(), most.count()));
}

// ---- how members find the exchange -------------------------------------------------------------

namespace {

struct Search {
  static constexpr const char* name = "finder";
  caf::typed_response_promise<JoinActor> promise;
  Duration until{};
};

}  // namespace

FinderActor World::spawn_finder_for(Host& host) {
  using Finder = FinderActor::extend<caf::reacts_to<RetryAtom>>;
  return host.process.system().spawn([this, &host](Finder::stateful_pointer<Search> self) {
    return Finder::behavior_type{
        [this, self](FindAtom, Duration patience) {
          self->state.promise = self->make_response_promise<decltype(Search::promise)>();
          self->state.until = net_.now() + patience;
          self->delayed_send(self, between(0ns, 2ms), RetryAtom::value);
          return self->state.promise;
        },
        // Tried again and again, like a connection that is refused.
        [this, self, &host](RetryAtom) {
          if (!self->state.promise.pending()) return;
          const auto door = caf::actor_cast<caf::strong_actor_ptr>(supervisor_);
          if (const auto proxy = net_.connect(host.process, *exchange_, door)) {
            self->state.promise.deliver(caf::actor_cast<JoinActor>(proxy));
          } else if (net_.now() > self->state.until) {
            self->state.promise.deliver(to_caf({ErrorCode::unavailable, "no answer"}));
          } else {
            self->delayed_send(self, Duration(100ms), RetryAtom::value);
          }
        },
    };
  });
}

}  // namespace weir::sim
