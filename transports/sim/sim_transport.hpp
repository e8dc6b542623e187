#pragma once
// A network for simulated worlds: in one process, one thread and whatever time its world has. It
// moves real bytes, slowly enough to be torn by whoever overwrites them meanwhile, and fails on
// order.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/random.hpp"
#include "transports/transport.hpp"

namespace weir {

struct SimState;

/// From the host whose regions are read to the host that reads.
struct SimPath {
  std::uint32_t source = 0;
  std::uint32_t reader = 0;

  friend auto operator<=>(const SimPath&, const SimPath&) noexcept = default;
};

/// How fast bytes move along a path. Concurrent starts do not slow each other.
struct SimLink {
  std::chrono::nanoseconds delay_least = std::chrono::microseconds(10);
  std::chrono::nanoseconds delay_most = std::chrono::milliseconds(1);
  std::uint64_t bytes_per_second = 0;  ///< 0: no limit.
};

/// What happens to a start.
enum class SimFault : std::uint8_t {
  none,
  fail,   ///< Ends with `io` after some of its bytes were written.
  late,   ///< Ends well, later by what `set_late_by` says.
  twice,  ///< Says twice that it is done, against the rule of `FetchDone`.
  never,  ///< Writes some bytes, and ends when it is cancelled.
};

/// What becomes of starts whose path is cut, those under way too.
enum class SimCut : std::uint8_t {
  fail,  ///< They end with `unavailable`.
  hang,  ///< They stand still until the path is healed.
};

/// What the hosts of one world have in common. Outlives their transports and fetches.
/// Threading: everything here, transports and fetches included, is for one thread.
class SimNetwork {
 public:
  /// Calls `then` after that time of the world, never from within the call itself; or never, if
  /// the world ends before.
  using After = std::function<void(std::chrono::nanoseconds delay, std::function<void()> then)>;

  /// `random` outlives the network: it decides delays.
  SimNetwork(After after, Random& random);
  ~SimNetwork();
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  /// For all paths that have no link of their own.
  void set_link(const SimLink& link);
  void set_link(const SimPath& path, const SimLink& link);
  void set_late_by(std::chrono::nanoseconds time);

  /// The next `count` starts, whoever makes them, after those that earlier calls are about.
  void fault_next(SimFault fault, int count = 1);

  void cut(const SimPath& path, SimCut manner);
  /// What hung goes on.
  void heal(const SimPath& path);

  /// While it is short of memory, about every second `expose` and `prepare` of the host is refused.
  void short_of_memory(std::uint32_t host, bool is_short);

  /// The host's process is gone: its regions can't be read, it writes nothing more, and transports
  /// that were made for it till now stay dead for ever.
  void take_down(std::uint32_t host);
  /// Transports that are made for the host from now on work.
  void bring_up(std::uint32_t host);

  [[nodiscard]] std::uint64_t starts() const noexcept;
  /// Written into targets, by starts that ended well or not.
  [[nodiscard]] std::uint64_t bytes_written() const noexcept;
  /// Target bytes that were read from an exposed region, by starts that ended well or not.
  [[nodiscard]] std::uint64_t bytes_read(const Region& region) const noexcept;

 private:
  friend std::unique_ptr<Transport> make_sim_transport(SimNetwork& network, std::uint32_t host);
  std::unique_ptr<SimState> state_;
};

/// The transport of one host, for all kinds of regions. Tickets name the host, a number that no
/// other exposed region ever gets, and the size. A start reads its bytes in two steps at different
/// times, each copy of two elements or more in both. `prepare` errors: `invalid` (a ticket that is
/// malformed or of another transport, sizes that do not agree, a copy outside its regions),
/// `unavailable` (the host is down, the region was withdrawn), `refused` (no memory), which
/// `expose` may say, too.
std::unique_ptr<Transport> make_sim_transport(SimNetwork& network, std::uint32_t host);

}  // namespace weir
