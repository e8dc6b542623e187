#pragma once
// How a run that was told to stop ends, wherever it was.

#include "runtime/result.hpp"

namespace weir {

inline tl::unexpected<Error> interruption() {
  return failure(ErrorCode::unavailable, "interrupted; nothing was left behind");
}

}  // namespace weir
