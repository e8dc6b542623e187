#pragma once
// How much memory this process can still get, so that a region too large is refused with a
// sentence and not by the kernel's out-of-memory killer.

#include <cstdint>
#include <optional>
#include <string_view>

namespace weir {

/// Bytes: the least of what the host has available and what each memory control group (version 2)
/// around this process has left. Reads /proc and /sys; an estimate, since others allocate too.
/// The largest number where nothing can be read.
std::uint64_t available_memory_bytes();

/// `MemAvailable` of a /proc/meminfo text, in bytes; nothing where it is missing.
std::optional<std::uint64_t> available_of_meminfo(std::string_view meminfo) noexcept;

/// What a control group has left, in bytes, from the texts of its `memory.max`, `memory.current`
/// and `memory.stat`: cached file pages count as free, since the kernel drops them first.
/// Nothing where the group has no limit or the texts can't be read.
std::optional<std::uint64_t> available_of_group(std::string_view max, std::string_view current,
                                                std::string_view stat) noexcept;

}  // namespace weir
