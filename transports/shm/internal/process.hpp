#pragma once
// Which process owns a region, said so that another process of the host can be sure to mean the
// same one although process ids are used again.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/result.hpp"

namespace weir::shm {

/// A process of one boot of one host. Two processes can be told apart for ever: an id is used
/// again only at a later start time.
struct ProcessId {
  std::array<std::uint8_t, 16> boot{};  ///< The kernel's boot id.
  std::uint64_t pid_namespace = 0;      ///< Its inode: ids mean nothing outside it.
  std::uint32_t pid = 0;
  std::uint64_t start_time = 0;  ///< Clock ticks after boot.

  friend bool operator==(const ProcessId&, const ProcessId&) noexcept = default;
};

/// This process. Errors: `io` where /proc is not mounted.
Result<ProcessId> own_process();

/// The start time in a /proc/<pid>/stat text; nothing for a text that is not one or a process that
/// has ended and only waits to be reaped.
std::optional<std::uint64_t> start_time_of_stat(std::string_view stat) noexcept;

/// A hold on a living process. Threading: immutable.
class PeerProcess {
 public:
  /// Errors: `unavailable` when it is gone, or lives on another host or in another container.
  static Result<std::shared_ptr<const PeerProcess>> find(const ProcessId& id);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  /// Whether it still lives. What was read from its id before a `true` was read from it.
  [[nodiscard]] bool alive() const noexcept;
  [[nodiscard]] std::uint32_t pid() const noexcept { return id_.pid; }

 private:
  PeerProcess(const ProcessId& id, int descriptor) noexcept : id_(id), descriptor_(descriptor) {}

  ProcessId id_;
  int descriptor_;  ///< A pidfd, or -1 on kernels without (before 5.3).
};

/// "process 1234", for messages.
std::string text_of(const ProcessId& id);

}  // namespace weir::shm
