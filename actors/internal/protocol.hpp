#pragma once
// What the actors of an exchange say to each other. Data never rides in these messages: they say
// what may move, and transports move it.
//
// Between processes (a peer's word, checked by the receiver):
//   shard → exchange        join(manifest, status)      → its seat
//                           acquire(version, deadline)  → the slot it may write, when nobody reads
//                           stand(version, bytes)         (so much of what it writes stands)
//                           staged(version)             → ok
//   exchange → shard        plan(seat, its part)        → digest of the plan and bytes prepared
//                           rejoin                        (the exchange has lost its memory)
//                           end(why)                    → ok
//   supervisor → trainer    update(seat, version, deadline) → version, when its bytes stand
//   coordinator → rollout   fetch(order), stand(more of it), cancel(seat, lease), pause, install,
//   resume, verify
// Every order names the seat that it is for: one that was meant for an earlier life of the member,
// or comes from an earlier life of the exchange, is refused. Every request has a deadline, and
// every shard is monitored by the planner.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/internal/caf.hpp"
#include "actors/internal/messages.hpp"
#include "actors/roster.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"
#include "transports/transport.hpp"

namespace weir {

/// Manifests and plans travel whole, in one message. 64 MiB is room for half a million pieces in
/// one shard; it takes loopback TCP about 60 ms, well within `silence_max_least`.
inline constexpr std::size_t payload_bytes_max = std::size_t{64} << 20;

/// Peers send a sign of life this often.
inline constexpr Duration heartbeat_interval = std::chrono::milliseconds(200);
/// For answers that need no work: to `join` and `end`.
inline constexpr Duration answer_deadline = std::chrono::seconds(30);
/// For members to say that they heard of the end.
inline constexpr Duration end_deadline = std::chrono::seconds(2);

using JoinAtom = caf::atom_constant<caf::atom("join")>;
using RejoinAtom = caf::atom_constant<caf::atom("rejoin")>;
using FindAtom = caf::atom_constant<caf::atom("find")>;
using PlanAtom = caf::atom_constant<caf::atom("plan")>;
using PrepareAtom = caf::atom_constant<caf::atom("prepare")>;
using PublishAtom = caf::atom_constant<caf::atom("publish")>;
using AcquireAtom = caf::atom_constant<caf::atom("acquire")>;
using StagedAtom = caf::atom_constant<caf::atom("staged")>;
using StandAtom = caf::atom_constant<caf::atom("stand")>;
using BeginAtom = caf::atom_constant<caf::atom("begin")>;
using UpdateAtom = caf::atom_constant<caf::atom("update")>;
using AnnounceAtom = caf::atom_constant<caf::atom("announce")>;
using RosterAtom = caf::atom_constant<caf::atom("roster")>;
using LeaseAtom = caf::atom_constant<caf::atom("lease")>;
using RenewAtom = caf::atom_constant<caf::atom("renew")>;
using ConfirmAtom = caf::atom_constant<caf::atom("confirm")>;
using ReleaseAtom = caf::atom_constant<caf::atom("release")>;
using RevokedAtom = caf::atom_constant<caf::atom("revoked")>;
using FetchAtom = caf::atom_constant<caf::atom("fetch")>;
using CancelAtom = caf::atom_constant<caf::atom("cancel")>;
using PauseAtom = caf::atom_constant<caf::atom("pause")>;
using InstallAtom = caf::atom_constant<caf::atom("install")>;
using ResumeAtom = caf::atom_constant<caf::atom("resume")>;
using VerifyAtom = caf::atom_constant<caf::atom("verify")>;
using CommitAtom = caf::atom_constant<caf::atom("commit")>;
using OutAtom = caf::atom_constant<caf::atom("out")>;
using ExpelAtom = caf::atom_constant<caf::atom("expel")>;
using StatusAtom = caf::atom_constant<caf::atom("status")>;
using RetryAtom = caf::atom_constant<caf::atom("retry")>;
using DoneAtom = caf::atom_constant<caf::atom("done")>;
using FailAtom = caf::atom_constant<caf::atom("fail")>;
using LateAtom = caf::atom_constant<caf::atom("late")>;
using EndAtom = caf::atom_constant<caf::atom("end")>;
using AdmitAtom = caf::atom_constant<caf::atom("admit")>;
using NextAtom = caf::atom_constant<caf::atom("next")>;
using ExtendAtom = caf::atom_constant<caf::atom("extend")>;
using FinishAtom = caf::atom_constant<caf::atom("finish")>;
using RejectAtom = caf::atom_constant<caf::atom("reject")>;
using BatchAtom = caf::atom_constant<caf::atom("batch")>;
using LastAtom = caf::atom_constant<caf::atom("last")>;
using ServeAtom = caf::atom_constant<caf::atom("serve")>;
using LifeAtom = caf::atom_constant<caf::atom("life")>;

// ---- between processes -------------------------------------------------------------------------

/// What the exchange shows to members. Who asks is told by the sender, which must have joined.
using JoinActor =
    caf::typed_actor<caf::replies_to<JoinAtom, Payload, MemberStatus>::with<Seated>,
                     caf::replies_to<AcquireAtom, std::uint64_t, Duration>::with<Acquired>,
                     caf::reacts_to<StandAtom, std::uint64_t, std::uint64_t>,
                     caf::replies_to<StagedAtom, std::uint64_t>::with<caf::ok_atom>>;

/// What every shard understands.
using ShardActor =
    caf::typed_actor<caf::replies_to<PlanAtom, std::uint64_t, Payload>::with<PlanHeld>,
                     caf::reacts_to<RejoinAtom>,
                     caf::replies_to<EndAtom, Ending>::with<caf::ok_atom>>;

using TrainerActor = ShardActor::extend<
    caf::replies_to<UpdateAtom, std::uint64_t, std::uint64_t, Duration>::with<std::uint64_t>>;

using RolloutActor =
    ShardActor::extend<caf::replies_to<FetchAtom, FetchOrder>::with<Fetched>,
                       caf::reacts_to<StandAtom, Standing>,
                       caf::replies_to<CancelAtom, std::uint64_t>::with<caf::ok_atom>,
                       caf::replies_to<PauseAtom, EngineOrder>::with<std::uint64_t>,
                       caf::replies_to<InstallAtom, EngineOrder>::with<std::uint64_t>,
                       caf::replies_to<ResumeAtom, EngineOrder>::with<std::uint64_t>,
                       caf::replies_to<VerifyAtom, EngineOrder>::with<std::uint64_t>>;

// ---- within one process ------------------------------------------------------------------------

using PlanPtr = std::shared_ptr<const Plan>;

/// What a transport or a hook said when it was done.
struct FetchOutcome {
  Result<FetchReport> result;
};
struct HookOutcome {
  Result<void> result;
};

/// The host program's end of a trainer shard: what `Member` sends it.
using TrainerHostActor =
    TrainerActor::extend<caf::replies_to<AcquireAtom, std::uint64_t, Duration>::with<Acquired>,
                         caf::reacts_to<StandAtom, std::uint64_t, std::uint64_t>,
                         caf::replies_to<StagedAtom, std::uint64_t>::with<caf::ok_atom>,
                         caf::reacts_to<RetryAtom, std::uint64_t>>;

/// A rollout shard with what it says to itself.
using RolloutSelfActor = RolloutActor::extend<caf::reacts_to<RetryAtom, std::uint64_t>>;

/// Finds the exchange, anew each time that it is asked.
using FinderActor = caf::typed_actor<caf::replies_to<FindAtom, Duration>::with<JoinActor>>;

/// Executes fetches by chunks, under a limit of bytes in flight. `fetch` is answered when all bytes
/// are there or a source failed; asked again with the same lease it goes on where it was. `stand`
/// says that more of a version that is being written may be read. `cancel`
/// is answered when nothing is written any more. `prepare` takes a plan with one part.
using TransportWorkerActor =
    caf::typed_actor<caf::replies_to<PrepareAtom, PlanPtr>::with<std::uint64_t>,
                     caf::replies_to<FetchAtom, FetchOrder>::with<Fetched>,
                     caf::reacts_to<StandAtom, Standing>,
                     caf::replies_to<CancelAtom>::with<caf::ok_atom>,
                     caf::reacts_to<DoneAtom, std::uint64_t, FetchOutcome>>;

using EngineActor = caf::typed_actor<caf::replies_to<UpdateAtom, EngineOrder>::with<std::uint64_t>,
                                     caf::replies_to<PauseAtom, EngineOrder>::with<std::uint64_t>,
                                     caf::replies_to<InstallAtom, EngineOrder>::with<std::uint64_t>,
                                     caf::replies_to<ResumeAtom, EngineOrder>::with<std::uint64_t>,
                                     caf::replies_to<VerifyAtom, EngineOrder>::with<std::uint64_t>,
                                     caf::reacts_to<DoneAtom, std::uint64_t, HookOutcome>>;

/// Who holds its part of the plan just now. A new one is made at every change.
struct Formation {
  Roster roster;
  std::map<ShardId, caf::strong_actor_ptr> handles;
};
using FormationPtr = std::shared_ptr<const Formation>;

/// Members join it; it tells the others of the exchange who is there.
using PlannerActor =
    caf::typed_actor<caf::replies_to<JoinAtom, Payload, MemberStatus>::with<Seated>,
                     caf::replies_to<AcquireAtom, std::uint64_t, Duration>::with<Acquired>,
                     caf::reacts_to<StandAtom, std::uint64_t, std::uint64_t>,
                     caf::replies_to<StagedAtom, std::uint64_t>::with<caf::ok_atom>,
                     caf::replies_to<PlanAtom>::with<PlanPtr>, caf::reacts_to<LateAtom>,
                     caf::reacts_to<ExpelAtom, ShardId, std::uint64_t, Error>,
                     caf::replies_to<EndAtom, Ending>::with<caf::ok_atom>>;

using LedgerActor =
    caf::typed_actor<caf::reacts_to<RosterAtom, FormationPtr>,
                     caf::replies_to<AcquireAtom, ShardId, std::uint64_t, Duration>::with<Acquired>,
                     caf::reacts_to<StandAtom, ShardId, std::uint64_t, std::uint64_t>,
                     caf::replies_to<StagedAtom, ShardId, std::uint64_t>::with<caf::ok_atom>,
                     caf::replies_to<LeaseAtom, LeaseRequest>::with<Lease>,
                     caf::replies_to<RenewAtom, std::uint64_t, ShardId>::with<Lease>,
                     caf::replies_to<ConfirmAtom, std::uint64_t>::with<caf::ok_atom>,
                     caf::reacts_to<ReleaseAtom, std::uint64_t>,
                     caf::reacts_to<CommitAtom, Committed>,
                     caf::reacts_to<LateAtom, ShardId, std::uint64_t>,
                     caf::reacts_to<LateAtom, std::uint64_t>, caf::reacts_to<LateAtom>>;

using CoordinatorActor = caf::typed_actor<
    caf::reacts_to<RosterAtom, FormationPtr>, caf::reacts_to<AnnounceAtom, std::uint64_t>,
    caf::reacts_to<BeginAtom, std::uint64_t>, caf::reacts_to<StandAtom, Standing>,
    caf::reacts_to<RevokedAtom, std::uint64_t>, caf::reacts_to<RetryAtom, std::uint64_t>,
    caf::replies_to<VerifyAtom, std::uint64_t, Duration>::with<Duration>>;

/// What the owner asks about samples: `Sampling`'s calls, one for one.
using SamplingActor =
    caf::typed_actor<caf::replies_to<AdmitAtom, Duration, std::uint64_t>::with<Assignment>,
                     caf::replies_to<NextAtom, Attempt, Duration>::with<Assignment>,
                     caf::replies_to<ExtendAtom, Attempt, Span>::with<caf::ok_atom>,
                     caf::replies_to<FinishAtom, Attempt, Duration>::with<bool>,
                     caf::replies_to<RejectAtom, SampleId>::with<caf::ok_atom>,
                     caf::replies_to<BatchAtom, std::uint64_t, Duration>::with<SampleBatch>,
                     caf::replies_to<LastAtom>::with<caf::ok_atom>>;

using AdmissionActor = SamplingActor::extend<
    caf::replies_to<StatusAtom>::with<SamplingStatus>,
    // From the supervisor:
    caf::reacts_to<AnnounceAtom, std::uint64_t>, caf::reacts_to<LifeAtom, std::uint64_t>,
    caf::reacts_to<FailAtom, Error>,
    // From coordinators of that life:
    caf::reacts_to<PauseAtom, ReplicaNews>, caf::reacts_to<ResumeAtom, ReplicaNews>,
    caf::reacts_to<ServeAtom, ReplicaNews>, caf::reacts_to<OutAtom, ReplicaNews>,
    // From itself:
    caf::reacts_to<LateAtom>>;

/// The door that members come in by, and what lives as long as the exchange does.
using SupervisorActor = JoinActor::extend_with<SamplingActor>::extend<
    caf::replies_to<PlanAtom>::with<PlanPtr>,
    caf::replies_to<PublishAtom, std::uint64_t>::with<VersionReport>,
    caf::replies_to<StatusAtom>::with<ExchangeStatus>,
    // From the actors that it runs:
    caf::reacts_to<RosterAtom, FormationPtr>, caf::reacts_to<AnnounceAtom, std::uint64_t>,
    caf::reacts_to<BeginAtom, std::uint64_t>, caf::reacts_to<StandAtom, std::uint32_t, Standing>,
    caf::reacts_to<RevokedAtom, std::uint64_t, std::uint32_t>,
    caf::reacts_to<CommitAtom, Committed>, caf::reacts_to<OutAtom, std::uint32_t, std::string>,
    caf::reacts_to<ExpelAtom, ShardId, std::uint64_t, Error>,
    caf::reacts_to<FailAtom, std::uint64_t, Error>, caf::reacts_to<LateAtom, std::uint64_t>,
    // From its owner:
    caf::reacts_to<FailAtom, Error>, caf::replies_to<EndAtom>::with<caf::ok_atom>>;

}  // namespace weir

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::FormationPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::PlanPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::Lease)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::LeaseRequest)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::Committed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::FetchOutcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::HookOutcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::VersionReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::ExchangeStatus)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::Error)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::Assignment)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::Attempt)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::Span)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::SampleBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::SamplingStatus)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::ReplicaNews)
