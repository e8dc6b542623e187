#pragma once
// 128-bit digests, by which two sides agree that they mean the same plan, model or bytes.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace weir {

/// A 128-bit XXH3 digest. It finds accidents, not forgeries: it is no cryptographic hash.
struct Digest {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const Digest&, const Digest&) noexcept = default;
  friend auto operator<=>(const Digest&, const Digest&) noexcept = default;
};

/// 32 lower-case hexadecimal digits.
std::string text_of(const Digest& digest);

Digest digest_of(std::span<const std::byte> bytes) noexcept;

/// Digests what it is fed, in order. Every `add` of a string also feeds its length, so that
/// ("ab", "c") and ("a", "bc") differ. Not thread-safe.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(const Digester&) = delete;
  Digester& operator=(const Digester&) = delete;

  void add(std::span<const std::byte> bytes) noexcept;
  void add(std::string_view text) noexcept;
  /// Fed as eight little-endian bytes, whatever the machine.
  void add(std::uint64_t number) noexcept;

  /// Of everything added so far; more may be added after.
  [[nodiscard]] Digest finish() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weir
