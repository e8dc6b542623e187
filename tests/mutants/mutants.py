"""Mistakes that the protocol's code could have: (name, what then goes wrong, changes). A change is
one place: (file, text, text instead)."""

LEDGER = "actors/ledger_state.cpp"
REPLICA = "actors/replica_state.cpp"
SHARD = "actors/shard_state.cpp"
FETCH = "actors/fetch_state.cpp"
FETCH_HEADER = "actors/fetch_state.hpp"
ROLLOUT = "actors/internal/rollout.cpp"

MUTANTS = [
    ("confirm_always", "a lease that was taken away is confirmed: torn bytes count",
     (LEDGER,
      "  if (found == leases_.end()) {\n"
      '    return failure(ErrorCode::refused, "lease "',
      "  if (found == leases_.end()) return {};\n"
      "  if (false) {\n"
      '    return failure(ErrorCode::refused, "lease "')),
    ("overwrite_leased", "a slot is written while a lease reads it",
     (LEDGER,
      "    if (is_read(holder)) continue;\n"
      "    held_.erase(holder);\n",
      "    held_.erase(holder);\n")),
    ("dead_holder_kept", "a rollout replica whose member died counts as a holder",
     (LEDGER,
      "return entry.first.side == shard.side && entry.first.replica == "
      "shard.replica;",
      "return shard.side == Side::trainer && entry.first.side == shard.side "
      "&&\n"
      "           entry.first.replica == shard.replica;")),
    ("ready_early", "a version is READY before all shards have staged it",
     (LEDGER,
      "whole = whole && same && other[slot].state == SlotState::whole;",
      "whole = whole && same;")),
    ("successor_read", "a reader reads the process that took the place of its source",
     (LEDGER, "    revoke_readers_of(shard);\n", "")),
    ("struck_source_free", "a source that failed one shard is overwritten while others read it",
     (LEDGER,
      "  use(live, left);\n",
      "  for (const Holder& holder : live.used) {\n"
      "    if (--read_[holder] == 0) read_.erase(holder);\n"
      "  }\n"
      "  live.used.clear();\n"
      "  use(live, left);\n")),
    ("read_slot_overwritten", "a slot is fetched into while another replica reads it",
     (LEDGER, "if (is_read(own)) {", "if (false && is_read(own)) {")),
    ("acquire_forgotten", "a slot that is being written counts as whole",
     (LEDGER,
      "[*target.slot] = {SlotState::writing, target.version};",
      "[*target.slot].version = target.version;")),
    ("resume_mixed", "shards resume before all have installed the same version",
     (REPLICA,
      "      effects_.emplace_back(replica::Resume{rank, all->version});",
      "      effects_.emplace_back(replica::Resume{rank, "
      "shards_[rank].installed});"),
     (REPLICA,
      "return shard.installed != 0 && shard.installed == first.installed && "
      "shard.slot == first.slot;",
      "return shard.installed != 0;")),
    ("no_confirmation", "a fetch counts without the ledger's word: commit before verify",
     (REPLICA,
      "  asking_ = true;\n"
      "  effects_.emplace_back(replica::Confirm{lease_->number});\n"
      "  return true;\n",
      "  effects_.emplace_back(replica::Release{lease_->number});\n"
      "  lease_.reset();\n"
      "  confirmed_ = true;\n"
      "  before_ = common();\n"
      "  return false;\n")),
    ("fetch_unpaused", "live weights are fetched into while the engine runs",
     (REPLICA,
      "return shard.running && shard.installed != state.goal_ && "
      "state.writes_live(shard);",
      "return shard.running && state.goal_ == 0;")),
    ("install_unpaused", "weights are installed while the engine runs",
     (REPLICA,
      "bool ReplicaState::install_all() {\n"
      "  if (pause_if([](const ReplicaState&, const Shard& shard) { return "
      "shard.running; })) return true;\n",
      "bool ReplicaState::install_all() {\n"),
     (SHARD,
      'if (status_.running) return refuse(shard_, "install", version, "its engine is not paused");',
      "")),
    ("stale_announcement", "a superseded announcement is not evicted",
     (REPLICA,
      "  newest_ = version;\n"
      "  waiting_ = false;",
      "  if (newest_ <= version_) newest_ = version;\n"
      "  waiting_ = false;")),
    ("no_floor", "a replica goes back to a version before the one that it served",
     (REPLICA, "newest_ < floor_", "false")),
    ("progress_kept", "what was fetched in an attempt that ended counts in the next",
     (REPLICA,
      "for (Shard& shard : shards_) shard.fetched = shard.stalled = false;",
      "for (Shard& shard : shards_) shard.stalled = false;")),
    ("live_not_void", "a coordinator believes in a version that it has overwritten in place",
     (REPLICA, "  if (writes_live(shard)) shard.installed = 0;\n", "")),
    ("no_expulsion", "a shard that fails or is silent is waited for, for ever",
     (REPLICA,
      "seat) return;\n"
      "  expel(from.rank, why);",
      "seat) return;\n"
      "  static_cast<void>(why);")),
    ("no_retry", "an attempt that failed is never made again",
     (REPLICA,
      "  effects_.emplace_back(replica::Retry{++retry_number_, ++attempt_});",
      "  ++attempt_;")),
    ("report_of_torn", "a shard reports live weights as whole that it has begun to overwrite",
     (SHARD,
      "    status_.installed = 0;\n"
      "  }\n"
      "  contents_[slot] = 0;",
      "  }\n"
      "  contents_[slot] = 0;")),
    ("report_of_writing", "a trainer reports a slot as it was before it began to write",
     (SHARD,
      "  status_.slots[slot] = {SlotState::writing, version};",
      "  static_cast<void>(version);")),
    ("progress_over_leases", "chunks that were fetched under another lease count",
     (FETCH,
      "  if (claim_ == claim) return;",
      "  if (claim_ && claim_->version == claim.version) return;")),
    ("chunk_counted_twice", "a chunk that is retried is counted twice",
     (FETCH,
      "  if (moved) {\n"
      "    bytes_done_",
      "  bytes_done_ += moved ? 0 : chunks_[chunk].bytes;\n"
      "  if (moved) {\n"
      "    bytes_done_")),
    ("credit_leaked", "the credit of a failed chunk is not given back",
     (FETCH,
      "  bytes_in_flight_ -= chunks_[chunk].bytes;",
      "  if (moved) bytes_in_flight_ -= chunks_[chunk].bytes;")),
    ("first_slot_always", "whatever slot a version lies in, the first one is read",
     ("actors/roster.cpp", "best->slot, false});", "0, false});")),
    ("read_ahead", "of a version that is being written, more is read than stands",
     (FETCH_HEADER,
      "    return chunk.reach <= stands_[chunk.source];",
      "    return chunk.bytes != 0;")),
    ("read_ahead_of_another", "what stood of a version before it was begun anew counts as standing",
     (LEDGER, "      stands_.erase(shard);\n      effects_", "      effects_")),
    ("early_lease_kept", "a slot is begun anew while it is read early",
     (LEDGER,
      "    if (begun_.erase(holder) != 0) end_early_leases();\n"
      "    if (is_read(holder)) continue;\n",
      "    const bool was_begun = begun_.erase(holder) != 0;\n"
      "    if (is_read(holder) && !was_begun) continue;\n")),
    ("commit_unready", "what was read early is committed before the version is READY",
     (FETCH_HEADER,
      "return chunks_done_ == chunks_.size() && !waits_for();",
      "return chunks_done_ == chunks_.size();"),
     (LEDGER, "  if (ready) return {};", "  if (ready || version != 0) return {};")),
    ("late_engine_kept", "an engine that missed its deadline is trusted again, and acts late",
     (ROLLOUT,
      "if (is_late(error)) return seat_->leave_late_engine(promise, "
      "deadline);\n",
      "")),
]
