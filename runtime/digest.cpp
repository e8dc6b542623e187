#include "runtime/digest.hpp"

#include <xxhash.h>

#include <array>
#include <cstdio>
#include <new>

namespace weir {
namespace {

Digest from_xxh(XXH128_hash_t hash) noexcept {
  return {hash.high64, hash.low64};
}

}  // namespace

struct Digester::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

std::string text_of(const Digest& digest) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(digest.high),
                static_cast<unsigned long long>(digest.low));
  return text.data();
}

Digest digest_of(std::span<const std::byte> bytes) noexcept {
  return from_xxh(XXH3_128bits(bytes.data(), bytes.size()));
}

Digester::Digester() : state_(std::make_unique<State>()) {}
Digester::~Digester() = default;

void Digester::add(std::span<const std::byte> bytes) noexcept {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

void Digester::add(std::string_view text) noexcept {
  add(static_cast<std::uint64_t>(text.size()));
  add(std::as_bytes(std::span(text)));
}

void Digester::add(std::uint64_t number) noexcept {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(number >> (8 * i));
  }
  add(std::span<const std::byte>(bytes));
}

Digest Digester::finish() const noexcept {
  return from_xxh(XXH3_128bits_digest(state_->xxh));
}

}  // namespace weir
