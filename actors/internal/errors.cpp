#include "actors/internal/errors.hpp"

#include <algorithm>

namespace weir {
namespace {

constexpr auto weir_category = caf::atom("weir");
constexpr std::size_t text_bytes_max = 2000;

/// Codes travel raised by one: CAF takes 0 for no error. Anything else is a peer's invention.
std::uint8_t to_wire(ErrorCode code) noexcept {
  return static_cast<std::uint8_t>(static_cast<std::uint8_t>(code) + 1);
}

ErrorCode from_wire(std::uint8_t code) noexcept {
  const bool known = code >= to_wire(ErrorCode::invalid) && code <= to_wire(ErrorCode::io);
  return known ? static_cast<ErrorCode>(code - 1) : ErrorCode::invalid;
}

bool is_system(const caf::error& error, caf::sec code) noexcept {
  return error && error.category() == caf::atom("system") &&
         error.code() == static_cast<std::uint8_t>(code);
}

}  // namespace

caf::error to_caf(const Error& error) {
  return {to_wire(error.code), weir_category, caf::make_message(error.text)};
}

Error from_caf(const caf::error& error) {
  if (!error) return {ErrorCode::invalid, "a peer reports an error without saying which"};
  if (error.category() == weir_category) {
    const caf::message& context = error.context();
    const bool has_text = context.match_elements<std::string>();
    return {from_wire(error.code()),
            has_text ? one_line(context.get_as<std::string>(0)) : "no reason given"};
  }
  if (is_late(error)) {
    return {ErrorCode::timeout, "no answer within the deadline"};
  }
  if (is_death(error)) return {ErrorCode::unavailable, "the receiver is gone"};
  return {ErrorCode::invalid, one_line(caf::to_string(error))};
}

Ending to_ending(const Result<void>& outcome) {
  if (outcome) return {};
  return {to_wire(outcome.error().code), outcome.error().text};
}

Result<void> from_ending(const Ending& ending) {
  if (ending.text.empty()) return {};
  return failure(from_wire(ending.code), one_line(ending.text));
}

bool is_death(const caf::error& error) noexcept {
  return is_system(error, caf::sec::request_receiver_down) ||
         (error && error.category() == caf::atom("exit"));
}

bool is_late(const caf::error& error) noexcept {
  return is_system(error, caf::sec::request_timeout);
}

Error died(const ShardId& shard, const std::string& doing) {
  return {ErrorCode::unavailable, text_of(shard) + " died while " + doing};
}

Error member_failed(const ShardId& shard, const std::string& doing, const caf::error& error,
                    Duration deadline) {
  if (is_death(error)) return died(shard, doing);
  if (is_late(error)) {
    return {ErrorCode::timeout,
            text_of(shard) + " did not answer within " + text_of(deadline) + " while " + doing};
  }
  const Error own = from_caf(error);
  return {own.code, text_of(shard) + " failed while " + doing + ": " + own.text};
}

std::string text_of(Duration duration) {
  using namespace std::chrono;
  if (duration >= seconds(10)) return std::to_string(round<seconds>(duration).count()) + " s";
  return std::to_string(round<milliseconds>(duration).count()) + " ms";
}

std::string one_line(std::string_view text) {
  std::string line(text.substr(0, text_bytes_max));
  const auto is_control = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) == 0x7f;
  };
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  return line;
}

}  // namespace weir
