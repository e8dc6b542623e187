#include "runtime/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace weir {

void assertion_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "%s:%d: assertion failed (a bug in weir): %s\n", file, line, condition);
  std::abort();
}

}  // namespace weir
