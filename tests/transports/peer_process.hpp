#pragma once
// The far end of a transport test: a process of its own that exposes one region and does as told.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/manifest.hpp"

namespace weir {

/// What byte `index` of a region is after `fill` number `round`: both ends can work it out.
constexpr std::byte peer_byte(std::uint64_t round, std::uint64_t index) noexcept {
  std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15ULL + round * 0xd1b54a32d192ed03ULL;
  mixed ^= mixed >> 29;
  return static_cast<std::byte>(mixed * 0xbf58476d1ce4e5b9ULL >> 56);
}

/// A child that runs `weir_transport_peer`. It is killed and reaped with the object.
class PeerUnderTest {
 public:
  /// Exposes `bytes` bytes of memory of that kind, filled with round 0, through that transport.
  PeerUnderTest(const std::string& transport, RegionKind kind, std::uint64_t bytes);
  ~PeerUnderTest();
  PeerUnderTest(const PeerUnderTest&) = delete;
  PeerUnderTest& operator=(const PeerUnderTest&) = delete;

  [[nodiscard]] const RegionInfo& info() const noexcept { return info_; }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void fill(std::uint64_t round);
  void withdraw();
  /// SIGKILL, and waits until it is gone.
  void kill();

 private:
  void tell(const std::string& command);
  std::string answer();

  pid_t pid_ = -1;
  int commands_ = -1;
  int answers_ = -1;
  RegionInfo info_;
};

}  // namespace weir
