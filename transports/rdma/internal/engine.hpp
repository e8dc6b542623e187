#pragma once
// Decides which step goes over which connection, posts it, and sees it to its end.

#include <infiniband/verbs.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/region.hpp"
#include "runtime/workers.hpp"
#include "transports/rdma/internal/link.hpp"

namespace weir::rdma {

/// Buffers that packed steps go through, 8 MiB of them: as much as two fast rails have under way.
inline constexpr std::uint32_t bounce_slots = 32;

/// What the connector is to do with a rail.
struct RailTask {
  enum class Kind : std::uint8_t {
    connect,     ///< Then `connected` or `not_connected`.
    disconnect,  ///< So that the device gives back what was posted.
    close,       ///< Destroy the queue pair, then `closed`.
  };
  Kind kind = Kind::connect;
  Rail* rail = nullptr;
};

/// Threading: all members from any thread, save those that say otherwise; one lock guards all. It
/// is held for at most one step's posting, about 2 us.
class Engine {
 public:
  /// `wake` is called when `tasks` may have something new; it must not call back.
  Engine(const Devices& devices, Workers& workers, std::function<void()> wake,
         std::function<void(std::string_view)> note);
  /// All transfers have ended, and the connector.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] std::uint64_t message_bytes_max() const noexcept { return message_bytes_max_; }
  /// Makes the bounce buffers, if they are not there. Errors: as `Registration::make`.
  Result<void> have_bounce_buffers(Memory& memory);
  /// The connections to the peer of a ticket; they end with the last user.
  std::shared_ptr<Link> link_to(const Ticket& ticket);
  /// Whether a READ has reached that region before, and the peer still seems to be there.
  bool reaches(const Link& link, const SourceRegion& region);
  void set_reached(Link& link, const SourceRegion& region);

  void start(Transfer& transfer, FetchDone done);
  void cancel(Transfer& transfer) noexcept;
  /// Returns when no start is outstanding and no `done` is running.
  void wait(Transfer& transfer);

  /// From the completion threads.
  void completed(std::span<const ibv_wc> completions);

  // For the connector, whose one thread alone may call these.

  /// What to do now; `wake_at` becomes the time to ask again, if it is sooner.
  std::vector<RailTask> tasks(TimePoint now, TimePoint& wake_at);
  void connected(Rail& rail, TimePoint now);
  void not_connected(Rail& rail, Error why, TimePoint now);
  /// The peer or the device has ended the connection.
  void lost(Rail& rail, const std::string& why);
  /// The queue pair is destroyed: nothing of what was posted is written any more.
  void closed(Rail& rail);
  /// Loses every rail, for the end. All transfers have ended.
  void lose_all();

 private:
  using Lock = std::lock_guard<std::mutex>;

  // All of these under the lock.
  void pump(Link& link);
  Rail* rail_for(Link& link, const Step& step) const;
  bool post(Rail& rail, Lane& lane, std::uint32_t step, std::optional<std::uint32_t> slot);
  void complete(Rail& rail, const ibv_wc& completion);
  void settle(Rail& rail, const Posted& posted);
  void unpack(const Posted& posted);
  void release(std::uint32_t slot);
  void step_ended(Transfer& transfer);
  void lose(Rail& rail, Error why);
  void rest(Rail& rail, TimePoint now);
  void requeue(Lane& lane);
  void stop(Transfer& transfer);
  void fail(Transfer& transfer, const Error& error);
  void fail_queue(Link& link);
  void end_if_over(Transfer& transfer);
  Error error_of(const Rail& rail, const ibv_wc& completion, const Posted& posted) const;
  void plan_rail(Rail& rail, bool wanted, TimePoint now, TimePoint& wake_at,
                 std::vector<RailTask>& tasks);
  void tell(std::string text);

  const Devices& devices_;
  Workers& workers_;
  const std::function<void()> wake_;
  const std::function<void(std::string_view)> note_;
  std::uint64_t message_bytes_max_;

  std::mutex mutex_;  ///< Guards what follows, and all links and transfers.
  std::condition_variable ended_;
  std::list<std::shared_ptr<Link>> links_;
  std::unordered_map<std::uint32_t, Rail*> rails_;  ///< Connected ones, by number.
  std::uint32_t next_number_ = 1;
  std::vector<std::uint32_t> connections_;  ///< By device: rails that are not idle.
  std::unique_ptr<Region> bounce_;
  std::shared_ptr<const Registration> bounce_memory_;
  std::vector<std::uint32_t> free_slots_;
  std::deque<Link*> starved_;
};

}  // namespace weir::rdma
