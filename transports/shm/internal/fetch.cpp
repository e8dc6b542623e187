#include "transports/shm/internal/fetch.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "runtime/assert.hpp"

namespace weir::shm {
namespace {

/// Parts are small enough that threads end at about the same time and a cancel takes effect soon,
/// and large enough that taking one costs nothing.
constexpr std::uint64_t part_bytes_min = std::uint64_t{256} << 10;
constexpr std::uint64_t part_bytes_max = std::uint64_t{4} << 20;
constexpr std::uint64_t parts_per_thread = 8;

std::uint64_t bytes_of(const Copy& copy) {
  return static_cast<std::uint64_t>(element_count(copy.extent)) * size_of(copy.target_type);
}

/// Consecutive steps from one source.
struct Part {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::uint64_t bytes = 0;
};

class ShmFetch final : public Fetch {
 public:
  ShmFetch(const FetchParts& parts, Workers& workers)
      : workers_(workers),
        sources_(parts.sources),
        targets_(parts.targets),
        planned_copies_(parts.copies.size()) {
    std::uint64_t total = 0;
    for (const Copy& copy : parts.copies) total += bytes_of(copy);
    const std::uint64_t part_bytes = std::clamp(total / (workers.thread_count() * parts_per_thread),
                                                part_bytes_min, part_bytes_max);
    std::vector<std::vector<Copy>> by_source(sources_.size());
    for (const Copy& copy : parts.copies) {
      for (Copy& step : sources_[copy.source]->cut(copy, part_bytes)) {
        by_source[copy.source].push_back(step);
      }
    }
    make_parts(by_source, part_bytes);
  }

  ~ShmFetch() override {
    cancel();
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return lanes_ == 0; });
  }

  void start(FetchDone done) override {
    const std::size_t lanes = std::clamp<std::size_t>(parts_.size(), 1, workers_.thread_count());
    {
      const std::lock_guard lock(mutex_);
      WEIR_ASSERT(done && !done_);
      done_ = std::move(done);
      error_.reset();
      working_ = lanes;
      lanes_ += lanes;
      stop_ = false;
      next_ = 0;
      bytes_ = 0;
      finished_parts_ = 0;
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) workers_.post([this] { work(); });
  }

  void cancel() noexcept override {
    const std::lock_guard lock(mutex_);
    if (done_) stop_ = true;
  }

 private:
  void make_parts(const std::vector<std::vector<Copy>>& by_source, std::uint64_t part_bytes) {
    std::vector<std::pair<std::size_t, Part>> numbered;
    for (const std::vector<Copy>& steps : by_source) {
      std::size_t number = 0;
      Part part{steps_.size(), steps_.size(), 0};
      for (const Copy& step : steps) {
        const std::uint64_t bytes = bytes_of(step);
        if (part.bytes > 0 && part.bytes + bytes > part_bytes) {
          numbered.emplace_back(number++, part);
          part = {part.end, part.end, 0};
        }
        steps_.push_back(step);
        ++part.end;
        part.bytes += bytes;
      }
      if (part.end > part.begin) numbered.emplace_back(number, part);
    }
    // The first parts of all sources, then the second ones: no source is busy while others idle.
    std::stable_sort(numbered.begin(), numbered.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    parts_.reserve(numbered.size());
    for (const auto& entry : numbered) parts_.push_back(entry.second);
  }

  void work() {
    while (!stop_) {
      const std::size_t index = next_++;
      if (index >= parts_.size()) break;
      const Part& part = parts_[index];
      const std::span<const Copy> steps(steps_.data() + part.begin, part.end - part.begin);
      const Result<void> read = sources_[steps.front().source]->read(steps, targets_, stop_);
      if (!read) {
        fail(read.error());
      } else if (!stop_) {
        bytes_ += part.bytes;
        ++finished_parts_;
      }
    }
    leave();
  }

  void fail(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    stop_ = true;
  }

  /// The last thread to leave reports. A new start may come as soon as it has.
  void leave() {
    FetchDone done;
    Result<FetchReport> report;
    {
      const std::lock_guard lock(mutex_);
      if (--working_ == 0) {
        done = std::exchange(done_, nullptr);
        report = outcome();
      }
    }
    if (done) done(std::move(report));
    const std::lock_guard lock(mutex_);
    if (--lanes_ == 0) idle_.notify_all();
  }

  Result<FetchReport> outcome() const {
    if (error_) return tl::unexpected(*error_);
    if (finished_parts_ < parts_.size()) {
      return failure(ErrorCode::unavailable, "the fetch was cancelled");
    }
    return FetchReport{.bytes = bytes_, .copies = planned_copies_};
  }

  Workers& workers_;
  const std::vector<std::shared_ptr<Source>> sources_;
  const Targets targets_;
  const std::uint64_t planned_copies_;
  std::vector<Copy> steps_;
  std::vector<Part> parts_;

  std::atomic<bool> stop_ = false;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<std::uint64_t> bytes_ = 0;
  std::atomic<std::size_t> finished_parts_ = 0;

  std::mutex mutex_;
  std::condition_variable idle_;
  FetchDone done_;           ///< Set while a start is outstanding.
  std::size_t working_ = 0;  ///< Threads still at work on it.
  std::size_t lanes_ = 0;    ///< Tasks of ours on the workers, also while they report.
  std::optional<Error> error_;
};

}  // namespace

std::unique_ptr<Fetch> make_fetch(const FetchParts& parts, Workers& workers) {
  return std::make_unique<ShmFetch>(parts, workers);
}

}  // namespace weir::shm
