#include "actors/member.hpp"

#include <future>
#include <utility>

#include "actors/internal/engine.hpp"
#include "actors/internal/errors.hpp"
#include "actors/internal/finder.hpp"
#include "actors/internal/shards.hpp"
#include "actors/internal/system.hpp"
#include "actors/internal/transport_worker.hpp"
#include "actors/membership.hpp"
#include "runtime/codec.hpp"

namespace weir {
namespace {

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
  MemberStatus status;
  status.placement = options.placement;
  if (const auto checked = check(status, options.manifest); !checked) return checked;
  if (options.connect_deadline <= Duration::zero()) {
    return failure(ErrorCode::invalid, "connect_deadline must be longer than nothing");
  }
  if (options.silence_max < silence_max_least) {
    return failure(ErrorCode::invalid, "silence_max must be at least 1 s");
  }
  return check(options.manifest);
}

/// Peers may read these regions from here until this is destroyed.
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

class CafMember final : public Member {
 public:
  CafMember(const MemberOptions& options, Manifest manifest)
      : options_(options),
        manifest_(std::move(manifest)),
        exposure_(*options.transport),
        system_(config_.use_network(options.silence_max)),
        outcome_(ended_.get_future().share()) {
    for (const RegionInfo& region : manifest_.regions) slot_bytes_ += region.bytes;
    slot_bytes_ /= manifest_.slots;
  }

  /// The shard ends when its system does, and with it what is written to the regions.
  ~CafMember() override {
    if (shard_) caf::anon_send_exit(shard_, caf::exit_reason::user_shutdown);
    trainer_ = nullptr;
    shard_ = nullptr;
  }

  Result<void> start() {
    const Result<void> exposed = exposure_.add(options_.regions, manifest_);
    if (!exposed) return exposed;
    auto payload = to_payload(encode(manifest_), "the manifest of " + text_of(manifest_.shard));
    if (!payload) return failure(payload);
    ShardConfig shard;
    shard.shard = manifest_.shard;
    shard.slots = manifest_.slots;
    shard.placement = options_.placement;
    shard.manifest = std::move(*payload);
    shard.finder = spawn_finder(system_, options_.host, options_.port);
    shard.engine = spawn_engine(system_, options_.hooks);
    shard.connect_deadline = options_.connect_deadline;
    shard.reconnect_deadline = options_.reconnect_deadline;
    shard.on_end = [this](Result<void> why) { ended_.set_value(std::move(why)); };
    if (manifest_.shard.side == Side::trainer) {
      trainer_ = spawn_trainer(system_, shard);
      shard_ = caf::actor_cast<caf::strong_actor_ptr>(trainer_);
    } else {
      shard.transport = spawn_transport_worker(
          system_, *options_.transport, options_.regions,
          {.window_bytes_max = options_.window_bytes_max, .slots = manifest_.slots});
      shard_ = caf::actor_cast<caf::strong_actor_ptr>(spawn_rollout(system_, shard));
    }
    return {};
  }

  Result<std::uint32_t> begin_update(std::uint64_t version, Duration wanted) override {
    if (!trainer_) return no_trainer();
    const Duration deadline = bounded(wanted);
    Result<std::uint32_t> slot;
    const caf::scoped_actor self(system_);
    self->request(trainer_, deadline + owner_grace, AcquireAtom::value, version, deadline)
        .receive([&slot](const Acquired& acquired) { slot = acquired.slot; },
                 [&slot](caf::error& error) { slot = tl::unexpected(from_caf(error)); });
    told_of_ = 0;
    return slot;
  }

  void standing(std::uint64_t version, std::uint64_t bytes) override {
    if (version != told_of_) told_ = 0;
    told_of_ = version;
    if (!trainer_ || bytes < told_ || bytes - told_ < slot_bytes_ / standing_steps) return;
    told_ = bytes;
    caf::anon_send(trainer_, StandAtom::value, version, bytes);
  }

  Result<void> publish(std::uint64_t version) override {
    if (!trainer_) return no_trainer();
    Result<void> published;
    const caf::scoped_actor self(system_);
    self->request(trainer_, answer_deadline + owner_grace, StagedAtom::value, version)
        .receive([](caf::ok_atom) {},
                 [&published](caf::error& error) { published = tl::unexpected(from_caf(error)); });
    return published;
  }

  Result<void> await_end() override { return outcome_.get(); }

 private:
  /// The trainer's actor answers in time by itself; this is for the case that it never does.
  static constexpr Duration owner_grace = std::chrono::seconds(60);
  /// Of one version at most so many messages say how much stands.
  static constexpr std::uint64_t standing_steps = 16;

  [[nodiscard]] tl::unexpected<Error> no_trainer() const {
    return failure(ErrorCode::invalid, text_of(manifest_.shard) + " is no trainer shard");
  }

  const MemberOptions options_;
  Manifest manifest_;
  Exposure exposure_;
  ActorSystemConfig config_;
  std::promise<Result<void>> ended_;
  caf::actor_system system_;
  std::shared_future<Result<void>> outcome_;
  TrainerHostActor trainer_;  ///< Null for rollout shards.
  caf::strong_actor_ptr shard_;
  std::uint64_t slot_bytes_ = 0;
  std::uint64_t told_ = 0;     ///< That so many bytes of its slot stand.
  std::uint64_t told_of_ = 0;  ///< The version.
};

}  // namespace

Result<std::unique_ptr<Member>> Member::start(const MemberOptions& options) {
  if (const auto checked = check(options); !checked) return failure(checked);
  auto member = std::make_unique<CafMember>(options, options.manifest);
  if (const auto started = member->start(); !started) return failure(started);
  return member;
}

Result<void> run_member(const MemberOptions& options) {
  auto member = Member::start(options);
  if (!member) return failure(member);
  return (*member)->await_end();
}

}  // namespace weir
