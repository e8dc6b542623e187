/* How versions reach replicas: leases on bytes that will be overwritten, and the commit of a
 * replica's shards. README.md says which code each step stands for.
 *
 * One trainer replica of two shards overwrites its one slot in place with versions 1, 2, ...
 * A model is two halves, half h being the bytes of trainer shard h. A rollout shard copies both,
 * one step each. A half holds the number of the version that it is of, or 0 if it is torn. With -D:
 * REPLICAS and SHARDS (of each) on the rollout side, VERSIONS, CRASHES (of anybody, at any moment),
 * STRIKES (leases that expire, installs that fail), IN_PLACE (no second buffer), EARLY (a half is
 * read as soon as its shard has staged it, before the version is ready), and a FAULT.
 */
#define NO_CONFIRM 1         /* Install without asking whether the lease outlived the fetch. */
#define OVERWRITE_AT_ONCE 2  /* Overwrite a slot that is leased. */
#define RESUME_EARLY 3       /* Resume each shard when it has installed. */
#define TRUST_OLD_LEASE 4    /* Confirm what was leased before the exchange died. */
#define READY_EARLY 5        /* Announce a version when its first shard has staged it. */
#define FORGET_TERM 6        /* Go on with a lease after a shard of the reader was replaced. */
#define FORGET_EPOCH 7       /* Obey orders of an exchange that has died. */
#define FORGET_READERS 8     /* When a source's shard dies, forget who reads its other shard. */
#define FORGET_VOID 9        /* Call a version installed whose slot is being overwritten. */
#define FORGET_FLOOR 10      /* Let a replica take any version, whatever it has served. */
#define ANY_INCARNATION 11   /* Read from whatever process has the source's name. */
#define COMMIT_ANY_TERM 12   /* Note a commit of a replica that has lost a shard since. */
#define PAUSE_LATE 13        /* Overwrite what runs, and pause it then. */
#define RESUME_MIXED 14      /* After a restart, resume whoever has installed something. */
#define FORGET_ACQUIRES 15   /* Rebuild a whole holder from reports that are no longer true. */
#define READ_TWICE 16        /* Fetch into a slot that others read. */
#define ANSWERS_OF_DEAD 17   /* Count what a shard said before it was replaced. */
#define READ_AHEAD 18        /* Read early what its shard has not staged. */
#ifndef FAULT
#define FAULT 0
#endif
#ifdef IN_PLACE
#define SLOTS 1
#else
#define SLOTS 2
#endif
#define K (REPLICAS * SHARDS)
#define ALL ((1 << SHARDS) - 1)
/* Rollout shards are alike, so that it is enough if the last one crashes. Trainer shards are not,
 * since the half of the first is read first. */
#ifdef ANYBODY_CRASHES
#define ROLLOUT_MAY(k) true
#elif defined(EXCHANGE_CRASHES)
#define ROLLOUT_MAY(k) false
#else
#define ROLLOUT_MAY(k) ((k) == K - 1)
#endif
#if defined(ROLLOUT_CRASHES) || defined(EXCHANGE_CRASHES)
#define TRAINER_MAY false
#else
#define TRAINER_MAY true
#endif
#ifdef ROLLOUT_CRASHES
#define EXCHANGE_MAY false
#else
#define EXCHANGE_MAY true
#endif
#define FIRST (r * SHARDS)
#define FINAL (r * SHARDS + SHARDS - 1)
#define BIT(k) (1 << ((k) % SHARDS))
#define HALF(k, s, h) halves[((k) * SLOTS + (s)) * 2 + (h)]
#define TRAINERS 1 /* As a source; the others are slots of rollout replicas. */
#define SLOT_OF(r, s) (2 + (r) * SLOTS + (s))

mtype = { acquire, staged };                    /* to the ledger */
mtype = { fetch, pause, install, resume };      /* to a rollout shard */
mtype = { rest, out, drain, land, undo };       /* what a coordinator is at, besides these four */

/* The members: memory, and what each process knows. `seat` is the epoch it obeys, 0 for none. */
byte step = 1, last = VERSIONS, epoch = 1, crashes = CRASHES, strikes = STRIKES;
byte t_seat[2], t_born[2], t_memory[2], t_has[2], t_asked[2], t_writing[2];
byte seat[K], born[K], halves[K * SLOTS * 2], installed[K], live[K], running[K], floor[K];
byte fetching[K], at[K], to[K], from[K], ticket[K];
byte served[REPLICAS]; /* The newest version ever served: for the claim, nobody can read it. */

/* The exchange forgets all this when it dies. The flags `gone` are messages that a member died. */
byte whole, staging, staged_by, newest, want[2], t_gone[2], gone_l[K], gone_c[K];
byte lease[REPLICAS], source[REPLICAS], holds[REPLICAS * SLOTS];
mtype phase[REPLICAS];
byte known[REPLICAS], await[REPLICAS], failed[REPLICAS], hurt[REPLICAS], target[REPLICAS];
byte old[REPLICAS], slot[REPLICAS], c_source[REPLICAS], c_ticket[REPLICAS], c_floor[REPLICAS];
byte c_installed[K], c_live[K], c_running[K];

#ifdef EARLY
byte early[REPLICAS]; /* The lease is of a version that is not ready. */
#define IS_EARLY(r) early[r]
#define SET_EARLY(r, on) early[r] = on
#else
#define IS_EARLY(r) false
#define SET_EARLY(r, on) skip
#endif
/* Once such a lease has ended, nothing keeps a shard that has not heard of it from reading on. */
#define STANDS(k, h) (!IS_EARLY((k) / SHARDS) || ((staged_by >> (h)) & 1) || FAULT == READ_AHEAD)

chan to_ledger = [4] of { mtype, byte, byte, byte };      /* what, shard, incarnation, version */
chan grant[2] = [2] of { byte, byte };                    /* epoch, version */
chan order[K] = [2] of { byte, mtype, byte, byte, byte, byte, byte };
chan reply[REPLICAS] = [4] of { byte, byte, byte };       /* shard, incarnation, success */

#define READS(r, s) (lease[r] && source[r] == (s))
#if REPLICAS == 1
#define READ_BY_ANY(s) READS(0, s)
#else
#define READ_BY_ANY(s) (READS(0, s) || READS(1, s))
#endif

/* --- trainer shards and the ledger --- */

inline end_lease(r) { lease[r] = 0; source[r] = 0; SET_EARLY(r, 0) }
inline end_if_early(r) {
  if :: IS_EARLY(r) -> end_lease(r) :: else fi
}
inline end_early_leases() {
  end_if_early(0)
#if REPLICAS > 1
  ; end_if_early(1)
#endif
}
inline note_ready(r, v) { if :: lease[r] == v -> SET_EARLY(r, 0) :: else fi }
inline begin_staging(v) {
  if :: v > staging && v > whole -> staging = v; staged_by = 0; end_early_leases() :: else fi
}
inline note_staged(s, v) {
  if
  :: v > 0 && v == staging ->
    staged_by = staged_by | (1 << s);
    if
    :: staged_by == 3 || FAULT == READY_EARLY ->
      assert((t_memory[0] == v || t_gone[0]) && (t_memory[1] == v || t_gone[1]));
      whole = v; newest = (v > newest -> v : newest); staging = 0; staged_by = 0;
      note_ready(0, v)
#if REPLICAS > 1
      ; note_ready(1, v)
#endif
    :: else
    fi
  :: else
  fi
}

proctype Trainer(byte s) {
  byte e, v;
end: do
  :: atomic { t_seat[s] != epoch && !t_gone[s] -> /* joins, with a report */
      if /* Its job goes on with a number that no earlier life of this shard has used. */
      :: t_born[s] && t_seat[s] == 0 -> step++; last++
      :: else
      fi;
      t_seat[s] = epoch; t_asked[s] = t_writing[s];
      if
      :: t_writing[s] -> begin_staging(t_writing[s])
      :: FAULT == FORGET_ACQUIRES && t_has[s] && t_has[1 - s] == t_has[s] ->
        whole = t_has[s]; newest = whole; staging = 0
      :: else -> begin_staging(t_has[s]); note_staged(s, t_has[s])
      fi }
  :: atomic { t_seat[s] == epoch && !t_writing[s] && t_has[s] != step && t_asked[s] != step ->
      t_asked[s] = step; to_ledger!acquire, s, t_born[s], step }
  :: atomic { grant[s]?e, v ->
      if
      :: e == t_seat[s] && v == t_asked[s] && !t_writing[s] ->
        t_writing[s] = v; t_has[s] = 0; t_memory[s] = 0
      :: else
      fi; e = 0; v = 0 }
  :: atomic { t_writing[s] ->
      t_has[s] = t_writing[s]; t_memory[s] = t_writing[s]; t_writing[s] = 0; t_asked[s] = 0;
      if
      :: t_seat[s] == epoch -> to_ledger!staged, s, t_born[s], t_has[s]
      :: else
      fi }
  :: atomic { crashes && !t_born[s] && TRAINER_MAY ->
      crashes--; t_born[s] = 1; t_gone[s] = (t_seat[s] == epoch); t_seat[s] = 0;
      t_memory[s] = 0; t_has[s] = 0; t_asked[s] = 0; t_writing[s] = 0;
      do :: grant[s]?_, _ :: empty(grant[s]) -> break od }
  od
}

inline to_rest() {
  end_lease(r); phase[r] = rest; target[r] = 0; old[r] = 0; slot[r] = 0; failed[r] = 0; hurt[r] = 0;
  c_source[r] = 0; c_ticket[r] = 0
}
inline end_leases_of_trainers() {
  for (r : 0 .. REPLICAS - 1) {
    if :: READS(r, TRAINERS) -> end_lease(r) :: else fi
  }
  r = 0
}
inline give(s) { whole = 0; grant[s]!epoch, want[s]; want[s] = 0 }
#define MAY_GIVE(s) (want[s] && want[s] == staging && (FAULT == OVERWRITE_AT_ONCE || \
  (FAULT == FORGET_READERS && !whole) || !READ_BY_ANY(TRAINERS)))

inline lose_trainer(s) {
  t_gone[s] = 0; whole = 0; staging = 0; staged_by = 0; want[0] = 0; want[1] = 0;
  end_early_leases()
}
inline lose_rollout(k) {
  gone_l[k] = 0; r = k / SHARDS;
  if :: FAULT != FORGET_TERM -> end_lease(r) :: else fi;
  for (s : 0 .. SLOTS - 1) { holds[r * SLOTS + s] = 0 }
  r = 0; s = 0
}
inline die() {
  crashes--; epoch++;
  whole = 0; staging = 0; staged_by = 0; newest = 0; want[0] = 0; want[1] = 0;
  t_gone[0] = 0; t_gone[1] = 0;
  do :: to_ledger?_, _, _, _ :: empty(to_ledger) -> break od;
  for (r : 0 .. REPLICAS - 1) {
    known[r] = 0; c_floor[r] = 0;
    if
    :: FAULT == TRUST_OLD_LEASE && phase[r] == fetch -> source[r] = 0
    :: else ->
      await[r] = 0; to_rest();
      do :: reply[r]?_, _, _ :: empty(reply[r]) -> break od
    fi;
    for (s : 0 .. SLOTS - 1) { holds[r * SLOTS + s] = 0 }
  }
  for (k : 0 .. K - 1) {
    gone_l[k] = 0; gone_c[k] = 0; c_installed[k] = 0; c_live[k] = 0; c_running[k] = 0
  }
  r = 0; s = 0; k = 0
}

proctype Ledger() {
  byte s, r, k, b, v;
end: do
  :: atomic { to_ledger?acquire, s, b, v ->
      if :: b == t_born[s] || t_gone[s] -> want[s] = v; begin_staging(v) :: else fi;
      s = 0; b = 0; v = 0 }
  :: atomic { to_ledger?staged, s, b, v ->
      if :: b == t_born[s] || t_gone[s] -> note_staged(s, v) :: else fi;
      s = 0; b = 0; v = 0 }
  :: atomic { MAY_GIVE(0) -> give(0) }
  :: atomic { MAY_GIVE(1) -> give(1) }
  :: atomic { (want[0] || want[1]) && READ_BY_ANY(TRAINERS) -> end_leases_of_trainers() }
  :: atomic { strikes && lease[0] -> strikes--; end_lease(0) } /* Its own deadline. */
  :: atomic { newest == step && step < last -> step++ }        /* The trainers' job goes on. */
  :: atomic { t_gone[0] -> lose_trainer(0) }
  :: atomic { t_gone[1] -> lose_trainer(1) }
  :: atomic { gone_l[0] -> lose_rollout(0) }
#if K > 1
  :: atomic { gone_l[1] -> lose_rollout(1) }
#endif
  :: atomic { crashes && epoch == 1 && EXCHANGE_MAY -> die() }
  od
}

/* --- rollout shards --- */

#define TRUSTED(r) (FAULT == TRUST_OLD_LEASE && phase[r] == fetch)
inline end_fetch(success) {
  fetching[k] = 0; to[k] = 0; from[k] = 0; ticket[k] = 0; answer(success)
}
inline answer(success) {
  if :: seat[k] == epoch || TRUSTED(k / SHARDS) -> reply[k / SHARDS]!k, born[k], success :: else fi
}
/* What one step of a fetch finds: the bytes of another process do not count. */
inline read_half(h) {
  if
  :: from[k] == TRAINERS -> b = ((ticket[k] >> h) & 1) == t_born[h]; v = t_memory[h]
  :: else ->
    other = ((from[k] - 2) / SLOTS) * SHARDS + k % SHARDS;
    b = ((ticket[k] >> (k % SHARDS)) & 1) == born[other];
    v = HALF(other, (from[k] - 2) % SLOTS, h)
  fi;
  if
  :: b || FAULT == ANY_INCARNATION ->
    HALF(k, to[k], h) = v; at[k]++;
    if :: at[k] == 2 -> end_fetch(1); at[k] = 0 :: else fi
  :: else -> end_fetch(0)
  fi;
  b = 0; v = 0; other = 0
}

proctype Rollout(byte k) {
  byte e, v, s, f, b, other, r;
  mtype what;
end: do
  :: atomic { seat[k] != epoch && !gone_l[k] && !gone_c[k] -> /* joins, with a report */
      r = k / SHARDS;
      seat[k] = epoch;
      if
      :: TRUSTED(r)
      :: else -> fetching[k] = 0; to[k] = 0; from[k] = 0; ticket[k] = 0; at[k] = 0
      fi;
      known[r] = known[r] | BIT(k);
      c_installed[k] = installed[k]; c_live[k] = live[k]; c_running[k] = running[k];
      c_floor[r] = (floor[k] > c_floor[r] -> floor[k] : c_floor[r]);
      if
      :: known[r] == ALL && installed[k] && c_installed[FIRST] == c_installed[FINAL] &&
         c_live[FIRST] == c_live[FINAL] ->
        holds[r * SLOTS + live[k]] = installed[k];
        newest = (installed[k] > newest -> installed[k] : newest)
      :: else
      fi;
      r = 0 }
  :: atomic { order[k]?e, what, v, s, f, b, other ->
      if
      :: e != seat[k] && FAULT != FORGET_EPOCH && !(what == fetch && TRUSTED(k / SHARDS))
      :: else ->
        if
        :: what == fetch ->
          fetching[k] = 1; to[k] = s; from[k] = f; ticket[k] = b;
          if :: other -> at[k] = 0 :: else fi;
          if :: s == live[k] && FAULT != FORGET_VOID -> installed[k] = 0 :: else fi
        :: what == pause -> running[k] = 0; answer(1)
        :: what == install ->
          if
          :: installed[k] = v; live[k] = s; running[k] = (FAULT == RESUME_EARLY); answer(1)
          :: strikes -> strikes--; answer(0)
          fi
        :: what == resume ->
          running[k] = 1; floor[k] = installed[k]; answer(1);
          assert(installed[k] >= served[k / SHARDS]); served[k / SHARDS] = installed[k]
        fi
      fi;
      e = 0; what = 0; v = 0; s = 0; f = 0; b = 0; other = 0 }
  :: atomic { fetching[k] && STANDS(k, at[k]) -> read_half(at[k]) }
  :: atomic { crashes && !born[k] && ROLLOUT_MAY(k) ->
      crashes--; born[k] = 1; gone_l[k] = (seat[k] == epoch); gone_c[k] = gone_l[k]; seat[k] = 0;
      for (s : 0 .. SLOTS * 2 - 1) { halves[k * SLOTS * 2 + s] = 0 }
      installed[k] = 0; live[k] = 0; running[k] = 0; floor[k] = 0; fetching[k] = 0; at[k] = 0;
      to[k] = 0; from[k] = 0; ticket[k] = 0; s = 0;
      do :: order[k]?_, _, _, _, _, _, _ :: empty(order[k]) -> break od }
  od
}

/* --- coordinators --- */

/* Asks each shard k that `which` holds for. Messages to the dead are lost. */
inline ask(what, version, place, fresh, which) {
  failed[r] = 0;
  for (k : FIRST .. FINAL) {
    if
    :: which ->
      await[r] = await[r] | BIT(k);
      if
      :: seat[k] == epoch -> order[k]!epoch, what, version, place, c_source[r], c_ticket[r], fresh
      :: else
      fi
    :: else
    fi
  }
  k = 0; phase[r] = what
}
#define SAME (c_installed[FIRST] && c_installed[FIRST] == c_installed[FINAL])
#define BOTH (c_installed[FIRST] && c_installed[FINAL] && FAULT == RESUME_MIXED)
#define ANY_RUNNING (c_running[FIRST] || c_running[FINAL])
#define ALL_RUNNING (c_running[FIRST] && c_running[FINAL])
#define HURT (hurt[r] && FAULT != FORGET_TERM)
#define LEASED ((lease[r] == target[r] && !IS_EARLY(r)) || FAULT == NO_CONFIRM)
#define TOLD(k) (!gone_c[k] || gone_l[k]) /* Not in the ledger's term before the coordinator is. */
#define WANTS(v) (v && (v >= c_floor[r] || FAULT == FORGET_FLOOR) && \
  (c_installed[FIRST] != v || c_installed[FINAL] != v))
#ifdef IN_PLACE
#define NEXT_SLOT 0
#else
#define NEXT_SLOT (c_installed[FIRST] == newest -> c_live[FIRST] : \
  (c_installed[FINAL] == newest -> c_live[FINAL] : 1 - c_live[FIRST]))
#endif
/* Whole holders of v that are not about to be overwritten. */
#define IN_TRAINERS(v) (v && whole == v && !staging)
#define PEER (REPLICAS - 1 - r)
#define IN_PEER(v, s) (v && REPLICAS > 1 && holds[PEER * SLOTS + s] == v)
#define ANYWHERE(v) (IN_TRAINERS(v) || IN_PEER(v, 0) || IN_PEER(v, SLOTS - 1))

inline choose_source(v) {
  c_ticket[r] = 0;
  if
  :: IN_TRAINERS(v) ->
    c_source[r] = TRAINERS; c_ticket[r] = (t_born[0] ^ t_gone[0]) + 2 * (t_born[1] ^ t_gone[1])
  :: IN_PEER(v, 0) -> c_source[r] = SLOT_OF(PEER, 0)
  :: IN_PEER(v, SLOTS - 1) -> c_source[r] = SLOT_OF(PEER, SLOTS - 1)
  fi;
  if
  :: c_source[r] != TRAINERS ->
    for (k : PEER * SHARDS .. PEER * SHARDS + SHARDS - 1) {
      c_ticket[r] = c_ticket[r] + BIT(k) * (born[k] ^ gone_l[k])
    }
    k = 0
  :: else
  fi;
  source[r] = c_source[r]
}
inline fetch_all() {
  for (k : FIRST .. FINAL) {
    if :: c_live[k] == slot[r] && c_installed[k] != target[r] -> c_installed[k] = 0 :: else fi
  }
  ask(fetch, 0, slot[r], 1, c_installed[k] != target[r])
}
inline install_all() { ask(install, target[r], slot[r], 0, c_installed[k] != target[r]) }
inline strike_off_source() {
  if
  :: c_source[r] == TRAINERS -> if :: whole == target[r] -> whole = 0 :: else fi
  :: else -> holds[c_source[r] - 2] = 0
  fi
}

inline take_answer() {
  if
  :: (b == (born[k] ^ gone_c[k]) || FAULT == ANSWERS_OF_DEAD) && (await[r] & BIT(k)) ->
    await[r] = await[r] - BIT(k);
    if
    :: !v -> failed[r] = failed[r] | BIT(k)
    :: else ->
      if
      :: phase[r] == out || phase[r] == drain || phase[r] == land -> c_running[k] = 0
      :: phase[r] == install -> c_installed[k] = target[r]; c_live[k] = slot[r]
      :: phase[r] == undo -> c_installed[k] = old[r]; c_live[k] = 1 - slot[r]
      :: phase[r] == resume -> c_running[k] = 1
      :: phase[r] == fetch
      fi
    fi
  :: else
  fi;
  k = 0; b = 0; v = 0
}
inline lose_shard(lost) {
  gone_c[lost] = 0; hurt[r] = (phase[r] != rest);
  c_installed[lost] = 0; c_live[lost] = 0; c_running[lost] = 0;
  known[r] = known[r] & (ALL - BIT(lost)); await[r] = await[r] & (ALL - BIT(lost))
}
inline after_fetch() {
  if
  :: HURT || !LEASED -> to_rest()
  :: else ->
    if
    :: failed[r] ->
      strike_off_source(); b = failed[r];
      if
      :: ANYWHERE(target[r]) -> choose_source(target[r]); ask(fetch, 0, slot[r], 0, b & BIT(k))
      :: else -> to_rest()
      fi; b = 0
    :: else ->
      end_lease(r); c_source[r] = 0; c_ticket[r] = 0; /* Confirmed. */
      if
      :: ANY_RUNNING -> ask(pause, 0, 0, 0, c_running[k]); phase[r] = land
      :: else -> install_all()
      fi
    fi
  fi
}
inline after_install() {
  if
  :: HURT -> to_rest()
  :: else ->
    if
    :: failed[r] && old[r] ->
      ask(install, old[r], 1 - slot[r], 0, c_installed[k] == target[r]); phase[r] = undo
    :: failed[r] && !old[r] -> to_rest()
    :: else -> /* The commit. */
      if
      :: (TOLD(FIRST) && TOLD(FINAL)) || FAULT == COMMIT_ANY_TERM ->
        holds[r * SLOTS + slot[r]] = target[r]
      :: else
      fi;
      c_floor[r] = target[r]; to_rest(); ask(resume, 0, 0, 0, !c_running[k])
    fi
  fi
}

proctype Coordinator(byte r) {
  byte k, b, v;
end: do
  :: atomic { reply[r]?k, b, v -> take_answer() }
  :: atomic { gone_c[FIRST] -> lose_shard(FIRST) }
  :: atomic { FINAL != FIRST && gone_c[FINAL] -> lose_shard(FINAL) }
  :: atomic { phase[r] == rest && (known[r] != ALL || !SAME) && ANY_RUNNING ->
      ask(pause, 0, 0, 0, c_running[k]); phase[r] = out }
  :: atomic { phase[r] == rest && known[r] == ALL && (SAME || BOTH) && !ALL_RUNNING ->
      ask(resume, 0, 0, 0, !c_running[k]) }
  :: atomic { phase[r] == rest && known[r] == ALL && (SAME -> ALL_RUNNING : !ANY_RUNNING) &&
      WANTS(newest) && ANYWHERE(newest) && TOLD(FIRST) && TOLD(FINAL) &&
      (!READ_BY_ANY(SLOT_OF(r, NEXT_SLOT)) || FAULT == READ_TWICE) ->
      target[r] = newest; slot[r] = NEXT_SLOT; hurt[r] = 0; holds[r * SLOTS + slot[r]] = 0;
      old[r] = (SAME && SLOTS == 2 -> c_installed[FIRST] : 0);
      lease[r] = newest; choose_source(newest);
      if
      :: SLOTS == 1 && ANY_RUNNING && FAULT != PAUSE_LATE ->
        ask(pause, 0, 0, 0, c_running[k]); phase[r] = drain
      :: else -> fetch_all()
      fi }
#ifdef EARLY
  :: atomic { phase[r] == rest && known[r] == ALL && SAME && ALL_RUNNING && !WANTS(newest) &&
      staged_by && staging > c_installed[FIRST] && TOLD(FIRST) && TOLD(FINAL) &&
      !READ_BY_ANY(SLOT_OF(r, 1 - c_live[FIRST])) ->
      target[r] = staging; slot[r] = 1 - c_live[FIRST]; hurt[r] = 0;
      holds[r * SLOTS + slot[r]] = 0; old[r] = c_installed[FIRST];
      lease[r] = staging; early[r] = 1; source[r] = TRAINERS; c_source[r] = TRAINERS;
      c_ticket[r] = (t_born[0] ^ t_gone[0]) + 2 * (t_born[1] ^ t_gone[1]);
      fetch_all() }
#endif
  :: atomic { !await[r] && phase[r] == drain ->
      if :: HURT -> to_rest() :: else -> fetch_all() fi }
  :: atomic { !await[r] && phase[r] == fetch && (known[r] == ALL || FAULT != TRUST_OLD_LEASE) ->
      after_fetch() }
  :: atomic { !await[r] && phase[r] == land -> if :: HURT -> to_rest() :: else -> install_all() fi }
  :: atomic { !await[r] && phase[r] == install -> after_install() }
  :: atomic { !await[r] && (phase[r] == undo || phase[r] == resume || phase[r] == out) ->
      to_rest() }
  od
}

/* --- claims --- */

/* A decode step changes nothing, so that only its complaint is a step here: a shard runs with whole
 * bytes of one version, beside peers that have the same one or, newly started, none. */
#define TORN(k) (running[k] && (!installed[k] || HALF(k, live[k], 0) != installed[k] || \
  HALF(k, live[k], 1) != installed[k]))
#define MIXED(k, j) (running[k] && installed[j] && installed[j] != installed[k])
proctype Decoding(byte r) {
end: do
  :: atomic { TORN(FIRST) || TORN(FINAL) || MIXED(FIRST, FINAL) || MIXED(FINAL, FIRST) ->
      assert(false) }
  od
}

#define SERVES(k) (running[k] && installed[k] == last)
#if REPLICAS * SHARDS == 1
#define ALL_SERVE SERVES(0)
#else
#define ALL_SERVE (SERVES(0) && SERVES(1))
#endif
/* Where nothing can happen any more, every shard serves the last version. */
proctype Ending() { end: timeout -> assert(newest == last && ALL_SERVE) }
#ifdef PROGRESS
ltl progress { <>[] (newest == last && ALL_SERVE) }
#endif

init {
  atomic {
#ifdef LAGGING /* Begins where version 3 is ready, replica 0 serves 2 and replica 1 still 1. */
    step = 3; whole = 3; newest = 3;
    t_seat[0] = 1; t_seat[1] = 1; t_has[0] = 3; t_has[1] = 3; t_memory[0] = 3; t_memory[1] = 3;
    seat[0] = 1; seat[1] = 1; installed[0] = 2; installed[1] = 1; running[0] = 1; running[1] = 1;
    floor[0] = 2; floor[1] = 1; served[0] = 2; served[1] = 1; c_floor[0] = 2; c_floor[1] = 1;
    HALF(0, 0, 0) = 2; HALF(0, 0, 1) = 2; HALF(1, 0, 0) = 1; HALF(1, 0, 1) = 1;
    known[0] = 1; known[1] = 1; c_installed[0] = 2; c_installed[1] = 1;
    c_running[0] = 1; c_running[1] = 1; holds[0] = 2; holds[SLOTS] = 1;
#endif
    phase[0] = rest; run Coordinator(0); run Decoding(0);
#if REPLICAS > 1
    phase[1] = rest; run Coordinator(1); run Decoding(1);
#endif
    run Trainer(0); run Trainer(1); run Ledger(); run Rollout(0);
#if REPLICAS * SHARDS > 1
    run Rollout(1);
#endif
    run Ending()
  }
}
