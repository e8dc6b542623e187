#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "runtime/strided_copy.hpp"
#include "transports/internal/runs.hpp"
#include "transports/shm/internal/source.hpp"

namespace weir::shm {
namespace {

/// A run of its own costs the kernel about 200 ns, which is as much as reading 2 KiB more in the
/// run before (measured with 64 B to 16 KiB runs on a Xeon of 2023).
constexpr std::uint64_t gap_bytes_max = 2048;

/// Runs at least this long go straight into the target; shorter ones go into a buffer that the
/// cache holds, in fewer and longer reads, and on from there. They break even at about 2.5 KiB.
constexpr std::uint64_t direct_run_bytes_min = 4096;

/// A quarter of a usual second-level cache.
constexpr std::uint64_t buffer_bytes = std::uint64_t{256} << 10;

/// What the kernel takes in one call (IOV_MAX).
constexpr std::size_t runs_per_call_max = 1024;

Error read_error(const Ticket& ticket, int number) {
  const std::string who = text_of(ticket.owner);
  switch (number) {
    case EPERM:
    case ENOSYS:
      return {ErrorCode::refused, "the kernel forbids reading the memory of " + who};
    case ESRCH:
      return {ErrorCode::unavailable, who + " has ended"};
    case EFAULT:
      return {ErrorCode::unavailable, "the region is no longer in the memory of " + who};
    default:
      return {ErrorCode::io, "can't read the memory of " + who + ": " + std::strerror(number)};
  }
}

/// Collects runs and reads them when there are as many as one call takes.
class RunReader {
 public:
  explicit RunReader(const Ticket& ticket) noexcept : ticket_(ticket) {}

  void add(std::uint64_t offset, std::byte* target, std::uint64_t bytes) noexcept {
    if (count_ == runs_per_call_max) flush();
    remote_[count_] = {reinterpret_cast<void*>(ticket_.address + offset), bytes};
    local_[count_] = {target, bytes};
    ++count_;
    bytes_ += bytes;
  }

  /// Reads what is left and tells how all reads went: 0 or the first `errno`.
  int finish() noexcept {
    flush();
    return error_;
  }

 private:
  void flush() noexcept {
    if (count_ > 0 && error_ == 0) {
      const ssize_t read = process_vm_readv(static_cast<pid_t>(ticket_.owner.pid), local_.data(),
                                            count_, remote_.data(), count_, 0);
      // The kernel stops short at the first page that is not there.
      if (read < 0) {
        error_ = errno;
      } else if (static_cast<std::uint64_t>(read) != bytes_) {
        error_ = EFAULT;
      }
    }
    count_ = 0;
    bytes_ = 0;
  }

  const Ticket& ticket_;
  std::array<iovec, runs_per_call_max> remote_;
  std::array<iovec, runs_per_call_max> local_;
  std::size_t count_ = 0;
  std::uint64_t bytes_ = 0;
  int error_ = 0;
};

class DirectSource final : public Source {
 public:
  DirectSource(const Ticket& ticket, std::shared_ptr<const PeerProcess> owner)
      : ticket_(ticket), owner_(std::move(owner)) {}

  std::vector<Copy> cut(const Copy& copy, std::uint64_t part_bytes) const override {
    if (straight(copy)) return split(copy, part_bytes);
    return cut_to_fit(copy, gap_bytes_max, buffer_bytes);
  }

  Result<void> read(std::span<const Copy> copies, const Targets& targets,
                    const std::atomic<bool>& stop) override {
    // Parts of one straight copy are straight, except where a cut left less than a whole run;
    // those are short, and fit the buffer as well.
    RunReader reader(ticket_);
    std::vector<std::byte> buffer;
    int error = 0;
    for (const Copy& copy : copies) {
      if (stop || error != 0) break;
      const std::span<std::byte> target = targets[copy.target_region];
      if (const auto runs = straight(copy)) {
        for_each_run(*runs, [&](std::uint64_t from, std::uint64_t to) {
          reader.add(from, target.data() + to, runs->run_bytes);
        });
        continue;
      }
      const PackedCopy packed = pack(copy, gap_bytes_max);
      buffer.resize(std::max(buffer_bytes, packed.runs.bytes()));
      for_each_run(packed.runs, [&](std::uint64_t from, std::uint64_t to) {
        reader.add(from, buffer.data() + to, packed.runs.run_bytes);
      });
      error = reader.finish();
      if (error == 0) copy_strided(packed.from_packed, buffer, target);
    }
    error = reader.finish();
    if (error != 0) return tl::unexpected(read_error(ticket_, error));
    // A process that lives now has had its id all the while: the bytes were its own.
    if (!owner_->alive()) return tl::unexpected(read_error(ticket_, ESRCH));
    return {};
  }

 private:
  static std::optional<Runs> straight(const Copy& copy) {
    auto runs = direct_runs(copy);
    if (runs && runs->rank > 0 && runs->run_bytes < direct_run_bytes_min) runs.reset();
    return runs;
  }

  Ticket ticket_;
  std::shared_ptr<const PeerProcess> owner_;
};

}  // namespace

Result<std::unique_ptr<Source>> make_direct_source(const Ticket& ticket,
                                                   std::shared_ptr<const PeerProcess> owner) {
  // Its first and its last byte: whether the call is allowed, and whether the region is there.
  std::array<std::byte, 2> ends{};
  RunReader reader(ticket);
  reader.add(0, &ends[0], 1);
  reader.add(ticket.bytes - 1, &ends[1], 1);
  if (const int error = reader.finish(); error != 0) {
    return tl::unexpected(read_error(ticket, error));
  }
  return std::make_unique<DirectSource>(ticket, std::move(owner));
}

}  // namespace weir::shm
