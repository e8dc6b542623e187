#pragma once
// The assertion that stays on in release builds: a failed one is a bug in Weir, never bad input.

namespace weir {

/// Prints the condition and its place on standard error and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line) noexcept;

}  // namespace weir

#define WEIR_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::weir::assertion_failed(#condition, __FILE__, __LINE__))
