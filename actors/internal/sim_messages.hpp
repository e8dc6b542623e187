#pragma once
// How many messages a version costs, counted where processes are simulated: sockets do not tell.

#include <cstdint>

#include "runtime/result.hpp"

namespace weir::sim {

/// The messages between processes from `Exchange::publish` to its answer, when one replica of each
/// side has so many ranks, serves a version already, and nothing fails. Errors: `timeout` when the
/// publication does not come to an end, which is a fault of the protocol.
Result<std::uint64_t> messages_of_publication(std::uint32_t trainers, std::uint32_t rollouts);

}  // namespace weir::sim
