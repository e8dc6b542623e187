#pragma once
// What the actors of an exchange say to each other. Data never rides in these messages: they say
// what may move, and transports move it.
//
// Between processes (a peer's word, checked by the receiver):
//   shard → planner      join(manifest)            → ok, or why not
//   planner → shard      plan(its part)            → digest of the plan and bytes prepared
//   ledger → trainer     update(version, deadline) → version, when its bytes stand
//   coordinator → rollout  fetch(version, deadline)  → what was moved, when all bytes are there
//                          commit(version)           → version
//                          verify(version, deadline) → version
//   planner → shard      end(why)                  → ok
// Every one is a request with a deadline, and every shard is monitored by whoever asks it. Replies
// are matched to requests by CAF, so none can come unasked.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/exchange.hpp"
#include "actors/internal/caf.hpp"
#include "runtime/digest.hpp"
#include "runtime/manifest.hpp"
#include "runtime/plan.hpp"
#include "runtime/result.hpp"
#include "transports/transport.hpp"

namespace weir {

/// Manifests and plans travel whole, in one message. 64 MiB is room for half a million pieces in
/// one shard; it takes loopback TCP about 60 ms, well within `silence_max_least`.
inline constexpr std::size_t payload_bytes_max = std::size_t{64} << 20;

/// Peers send a sign of life this often.
inline constexpr Duration heartbeat_interval = std::chrono::milliseconds(200);
/// For answers that need no work: to `join`, `commit` and `end`.
inline constexpr Duration answer_deadline = std::chrono::seconds(30);
/// For members to say that they heard of the end.
inline constexpr Duration end_deadline = std::chrono::seconds(2);

using JoinAtom = caf::atom_constant<caf::atom("join")>;
using PlanAtom = caf::atom_constant<caf::atom("plan")>;
using PrepareAtom = caf::atom_constant<caf::atom("prepare")>;
using PublishAtom = caf::atom_constant<caf::atom("publish")>;
using UpdateAtom = caf::atom_constant<caf::atom("update")>;
using LeaseAtom = caf::atom_constant<caf::atom("lease")>;
using ReleaseAtom = caf::atom_constant<caf::atom("release")>;
using AdvanceAtom = caf::atom_constant<caf::atom("advance")>;
using FetchAtom = caf::atom_constant<caf::atom("fetch")>;
using CommitAtom = caf::atom_constant<caf::atom("commit")>;
using VerifyAtom = caf::atom_constant<caf::atom("verify")>;
using DoneAtom = caf::atom_constant<caf::atom("done")>;
using FailAtom = caf::atom_constant<caf::atom("fail")>;
using LateAtom = caf::atom_constant<caf::atom("late")>;
using EndAtom = caf::atom_constant<caf::atom("end")>;

// ---- between processes -------------------------------------------------------------------------

/// A manifest or plan as Cap'n Proto bytes (`runtime/codec.hpp`).
struct Payload {
  std::vector<char> bytes;
};

/// What a shard prepared.
struct PlanHeld {
  Digest digest;
  std::uint64_t bytes = 0;
};

/// What a fetch moved.
struct Fetched {
  std::uint64_t version = 0;
  std::uint64_t bytes = 0;
};

/// Why the exchange ends: an empty text is an orderly end, else it is an error of that code.
struct Ending {
  std::uint8_t code = 0;
  std::string text;
};

template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Digest& x) {
  return f(x.high, x.low);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Payload& x) {
  return f(caf::meta::type_name("Payload"), x.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, PlanHeld& x) {
  return f(caf::meta::type_name("PlanHeld"), x.digest, x.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Fetched& x) {
  return f(caf::meta::type_name("Fetched"), x.version, x.bytes);
}
template <class Inspector>
typename Inspector::result_type inspect(Inspector& f, Ending& x) {
  return f(caf::meta::type_name("Ending"), x.code, x.text);
}

/// What the planner shows to members.
using JoinActor = caf::typed_actor<caf::replies_to<JoinAtom, Payload>::with<caf::ok_atom>>;

/// What every shard understands.
using ShardActor = caf::typed_actor<caf::replies_to<PlanAtom, Payload>::with<PlanHeld>,
                                    caf::replies_to<EndAtom, Ending>::with<caf::ok_atom>>;

using TrainerActor =
    ShardActor::extend<caf::replies_to<UpdateAtom, std::uint64_t, Duration>::with<std::uint64_t>>;

using RolloutActor =
    ShardActor::extend<caf::replies_to<FetchAtom, std::uint64_t, Duration>::with<Fetched>,
                       caf::replies_to<CommitAtom, std::uint64_t>::with<std::uint64_t>,
                       caf::replies_to<VerifyAtom, std::uint64_t, Duration>::with<std::uint64_t>>;

// ---- within one process ------------------------------------------------------------------------

/// A shard that holds its part of the plan, and the way to reach it.
struct Member {
  ShardId shard;
  caf::strong_actor_ptr handle;
  std::uint64_t bytes_needed = 0;
};

/// The plan and those who hold it; both lists sorted by shard.
struct Formation {
  Plan plan;
  std::vector<Member> trainers;
  std::vector<Member> rollouts;
};
using FormationPtr = std::shared_ptr<const Formation>;
using PlanPtr = std::shared_ptr<const Plan>;

/// A replica has committed a version.
struct Advanced {
  std::uint64_t bytes_moved = 0;
  Duration at{};  ///< On the actor system's clock.
};

/// What a transport or a hook said when it was done.
struct FetchOutcome {
  Result<FetchReport> result;
};
struct HookOutcome {
  Result<void> result;
};

using PlannerActor =
    JoinActor::extend<caf::replies_to<PlanAtom>::with<FormationPtr>, caf::reacts_to<LateAtom>,
                      caf::replies_to<EndAtom, Ending>::with<caf::ok_atom>>;

using LedgerActor =
    caf::typed_actor<caf::replies_to<PublishAtom, std::uint64_t, Duration>::with<std::uint64_t>,
                     caf::replies_to<LeaseAtom, std::uint64_t, std::uint32_t>::with<std::uint64_t>,
                     caf::replies_to<ReleaseAtom, std::uint64_t>::with<caf::ok_atom>>;

using CoordinatorActor =
    caf::typed_actor<caf::replies_to<AdvanceAtom, std::uint64_t, Duration>::with<Advanced>,
                     caf::replies_to<VerifyAtom, std::uint64_t, Duration>::with<Duration>>;

using SupervisorActor =
    caf::typed_actor<caf::replies_to<PlanAtom>::with<FormationPtr>,
                     caf::replies_to<PublishAtom, std::uint64_t>::with<VersionReport>,
                     caf::reacts_to<FailAtom, Error>, caf::replies_to<EndAtom>::with<caf::ok_atom>>;

using TransportWorkerActor =
    caf::typed_actor<caf::replies_to<PrepareAtom, PlanPtr>::with<std::uint64_t>,
                     caf::replies_to<FetchAtom, std::uint64_t>::with<Fetched>,
                     caf::reacts_to<DoneAtom, std::uint64_t, FetchOutcome>>;

using EngineActor =
    caf::typed_actor<caf::replies_to<UpdateAtom, std::uint64_t>::with<std::uint64_t>,
                     caf::replies_to<VerifyAtom, std::uint64_t>::with<std::uint64_t>,
                     caf::reacts_to<DoneAtom, std::uint64_t, HookOutcome>>;

}  // namespace weir

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::FormationPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::PlanPtr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::Advanced)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::FetchOutcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::HookOutcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::VersionReport)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(weir::Error)
