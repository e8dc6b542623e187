#include "transports/shm/internal/process.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <sstream>

namespace weir::shm {
namespace {

std::string text_in(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::optional<std::uint64_t> start_time_of(std::uint32_t pid) {
  return start_time_of_stat(text_in("/proc/" + std::to_string(pid) + "/stat"));
}

/// "6a1d…-…" without its hyphens, as numbers.
std::optional<std::array<std::uint8_t, 16>> boot_id() {
  std::string digits = text_in("/proc/sys/kernel/random/boot_id");
  std::erase_if(digits, [](char c) { return c == '-' || c == '\n'; });
  std::array<std::uint8_t, 16> id{};
  if (digits.size() != 2 * id.size()) return std::nullopt;
  for (std::size_t i = 0; i < id.size(); ++i) {
    const char* pair = digits.data() + 2 * i;
    const auto parsed = std::from_chars(pair, pair + 2, id[i], 16);
    if (parsed.ec != std::errc{} || parsed.ptr != pair + 2) return std::nullopt;
  }
  return id;
}

}  // namespace

std::optional<std::uint64_t> start_time_of_stat(std::string_view stat) noexcept {
  // The name, in parentheses, may hold anything, parentheses too; the state is the third field and
  // the start time the twenty-second (proc(5)).
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= stat.size()) return std::nullopt;
  stat.remove_prefix(name_end + 2);
  if (stat[0] == 'Z' || stat[0] == 'X') return std::nullopt;
  for (int field = 3; field < 22; ++field) {
    const std::size_t space = stat.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    stat.remove_prefix(space + 1);
  }
  std::uint64_t ticks = 0;
  const auto parsed = std::from_chars(stat.data(), stat.data() + stat.size(), ticks);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return ticks;
}

Result<ProcessId> own_process() {
  ProcessId id;
  struct stat space {};
  const auto boot = boot_id();
  id.pid = static_cast<std::uint32_t>(getpid());
  const auto start = start_time_of(id.pid);
  if (!boot || !start || stat("/proc/self/ns/pid", &space) != 0) {
    return failure(ErrorCode::io,
                   "can't read this process's own entries under /proc; mount it there");
  }
  id.boot = *boot;
  id.pid_namespace = space.st_ino;
  id.start_time = *start;
  return id;
}

Result<std::shared_ptr<const PeerProcess>> PeerProcess::find(const ProcessId& id) {
  const Result<ProcessId> own = own_process();
  if (!own) return failure(own);
  if (id.boot != own->boot) {
    return failure(ErrorCode::unavailable,
                   text_of(id) +
                       " runs on another host (or before its last boot), where shared "
                       "memory does not reach; use a transport that crosses the network");
  }
  if (id.pid_namespace != own->pid_namespace) {
    return failure(ErrorCode::unavailable,
                   text_of(id) +
                       " runs in another container; share its process namespace "
                       "(--pid) or use a transport that crosses the network");
  }
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(id.pid), 0U));
  std::shared_ptr<const PeerProcess> peer(new PeerProcess(id, descriptor));
  // The descriptor was taken first: if the start time agrees now, it holds the process meant.
  if (start_time_of(id.pid) != id.start_time || !peer->alive()) {
    return failure(ErrorCode::unavailable, text_of(id) + " has ended");
  }
  return peer;
}

PeerProcess::~PeerProcess() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool PeerProcess::alive() const noexcept {
  if (descriptor_ < 0) return start_time_of(id_.pid) == id_.start_time;
  pollfd ended{.fd = descriptor_, .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) == 0;
}

std::string text_of(const ProcessId& id) {
  return "process " + std::to_string(id.pid);
}

}  // namespace weir::shm
