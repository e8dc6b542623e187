#pragma once
// Errors between Weir's and CAF's form, and the sentences that name who failed at what.

#include <string>
#include <string_view>

#include "actors/internal/protocol.hpp"

namespace weir {

/// As a reply to a request, with code and text kept.
caf::error to_caf(const Error& error);
/// Any error of CAF, a peer's or its own. The text is one line, cut at a length.
Error from_caf(const caf::error& error);

Ending to_ending(const Result<void>& outcome);
Result<void> from_ending(const Ending& ending);

/// Whether a reply says that the receiver is gone, not that it failed.
bool is_death(const caf::error& error) noexcept;

/// Whether there was no reply within the deadline.
bool is_late(const caf::error& error) noexcept;

/// "rollout 0.2 died while fetching version 3"
Error died(const ShardId& shard, const std::string& doing);
/// What a failed request to a member means: its death, its silence until `deadline`, or its own
/// error.
Error member_failed(const ShardId& shard, const std::string& doing, const caf::error& error,
                    Duration deadline);

/// "300 s" from ten seconds on, else "250 ms": rounded, for messages.
std::string text_of(Duration duration);

/// Printable, on one line, and not longer than a person reads.
std::string one_line(std::string_view text);

}  // namespace weir
