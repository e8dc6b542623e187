#pragma once
// A prepared fetch: copies cut into parts of about equal bytes, which worker threads take in turn.

#include <memory>
#include <vector>

#include "runtime/workers.hpp"
#include "transports/shm/internal/source.hpp"
#include "transports/transport.hpp"

namespace weir::shm {

/// What a fetch is made of, all of it checked.
struct FetchParts {
  /// With `Copy::source` as an index into `sources`.
  std::vector<Copy> copies;
  std::vector<std::shared_ptr<Source>> sources;
  Targets targets;
};

/// `workers` outlives the fetch.
std::unique_ptr<Fetch> make_fetch(const FetchParts& parts, Workers& workers);

}  // namespace weir::shm
