#pragma once
// What readers and owners say to each other where the kernel lets a reader neither map nor read
// the owner's memory: the owner packs runs into a ring of slots that both have mapped.
//
// Over an abstract SOCK_SEQPACKET unix socket, one message a packet:
//   owner  -> reader  StagingWelcome, with the ring's memfd
//   reader -> owner   StagingRequest, at most one a slot outstanding
//   owner  -> reader  StagingReply, in the order of the requests, when the slot is filled
// Both ends are on one machine: fields are in its byte order. Neither end trusts the other.

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "runtime/box.hpp"
#include "transports/internal/runs.hpp"
#include "transports/shm/internal/process.hpp"

namespace weir::shm {

/// "wst1" and the format's version.
inline constexpr std::uint32_t staging_magic = 0x31747377;

/// Four slots keep both ends busy; together they are half of a usual second-level cache, so that
/// the bytes pass from core to core without going to memory.
inline constexpr std::uint32_t staging_slots = 4;
inline constexpr std::uint64_t staging_slot_bytes = std::uint64_t{256} << 10;
inline constexpr std::uint64_t staging_ring_bytes = staging_slots * staging_slot_bytes;

/// Connections that one transport serves at a time: at most 64 MiB of rings, and as many threads.
inline constexpr std::size_t staging_connections_max = 64;

struct StagingWelcome {
  std::uint32_t magic = staging_magic;
  std::uint32_t slots = staging_slots;
  std::uint64_t slot_bytes = staging_slot_bytes;
};

/// Which runs to pack where. Offsets and strides are of the region; see `Runs`.
struct StagingRequest {
  std::uint32_t magic = staging_magic;
  std::uint32_t slot = 0;
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
  std::uint64_t run_bytes = 0;
  std::uint64_t rank = 0;
  std::array<std::uint64_t, rank_max> extent{};
  std::array<std::uint64_t, rank_max> stride{};
};

enum class StagingStatus : std::uint32_t { done, unknown_region, out_of_bounds };

struct StagingReply {
  std::uint32_t magic = staging_magic;
  std::uint32_t slot = 0;
  StagingStatus status = StagingStatus::done;
};

/// The name of an owner's socket, without the leading zero byte of the abstract namespace.
std::string staging_name(const ProcessId& owner, std::uint64_t endpoint);

/// The runs of a request, to be packed from the slot's start; nothing unless every one lies within
/// a region of that size and all of them fit the slot.
std::optional<Runs> runs_of(const StagingRequest& request, std::uint64_t region_bytes) noexcept;

}  // namespace weir::shm
