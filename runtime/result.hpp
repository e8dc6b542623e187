#pragma once
// Errors as values: what every operation that can meet operating trouble returns.

#include <cstdint>
#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace weir {

/// What kind of trouble, so that a caller can decide; the text says the rest to a person.
enum class ErrorCode : std::uint8_t {
  invalid,      ///< The request or the data contradicts itself or its rules.
  not_found,    ///< A file, name or member does not exist.
  refused,      ///< A stated limit or a policy (of ours or of the kernel) says no.
  unavailable,  ///< A peer is gone or can't be reached.
  timeout,      ///< A deadline passed.
  io,           ///< The system failed to read, write, map or allocate.
};

/// `text` is one line for a person: what went wrong, where, and what to change.
struct Error {
  ErrorCode code = ErrorCode::invalid;
  std::string text;

  friend bool operator==(const Error&, const Error&) = default;
};

/// Either a value or an `Error`. Never throws; `value()` is only called after a check.
template <class T>
using Result = tl::expected<T, Error>;

/// `return failure(ErrorCode::io, "...")` from any function that returns a `Result`.
inline tl::unexpected<Error> failure(ErrorCode code, std::string text) {
  return tl::unexpected<Error>(Error{code, std::move(text)});
}

/// Hands on the error of another result.
template <class T>
tl::unexpected<Error> failure(const Result<T>& other) {
  return tl::unexpected<Error>(other.error());
}

}  // namespace weir
