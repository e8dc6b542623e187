#pragma once
// A transport for tests: it copies element by element, when and how it is told.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/element_type.hpp"
#include "transports/transport.hpp"

namespace weir {

/// Work that others have taken on and not yet done: copies and hooks. Whoever holds the list does
/// it, in whatever order.
using Chores = std::deque<std::function<void()>>;

/// What a chore does when its turn comes.
enum class Manner : std::uint8_t {
  succeed,
  fail,
  stall,        ///< Never says that it is done.
  say_twice,    ///< Says that it is done, then says it again.
  move_little,  ///< Copies, but reports fewer bytes.
};

/// Reads from addresses of this process (or one that was forked from the same parent): a ticket is
/// the address of the region, in decimal. Used by one thread at a time.
class FakeTransport final : public Transport {
 public:
  /// `manner(n)` decides about the nth start of a fetch, from 1; `chores` null means at once.
  FakeTransport(std::function<Manner(int)> manner, Chores* chores)
      : manner_(std::move(manner)), chores_(chores) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "fake"; }
  [[nodiscard]] bool reads(RegionKind) const noexcept override { return true; }
  [[nodiscard]] bool writes(RegionKind) const noexcept override { return true; }

  Result<RegionInfo::Ticket> expose(const Region& region) override {
    if (refuse_to_expose) return failure(ErrorCode::refused, "no");
    ++exposed;
    ++exposed_ever;
    return RegionInfo::Ticket{
        "fake", std::to_string(reinterpret_cast<std::uintptr_t>(region.bytes().data()))};
  }
  void withdraw(const Region&) noexcept override { --exposed; }

  Result<std::unique_ptr<Fetch>> prepare(const FetchRequest& request) override {
    if (refuse_to_prepare) return failure(ErrorCode::refused, "the kernel says no");
    return std::make_unique<FakeFetch>(*this, request);
  }

  bool refuse_to_expose = false;
  bool refuse_to_prepare = false;
  int exposed = 0;
  int exposed_ever = 0;

 private:
  class FakeFetch final : public Fetch {
   public:
    FakeFetch(FakeTransport& transport, const FetchRequest& request)
        : transport_(transport), copies_(request.copies.begin(), request.copies.end()) {
      for (const Copy& copy : copies_) {
        const RegionInfo& source = request.sources[copy.source].regions[copy.source_region];
        sources_.push_back(reinterpret_cast<const std::byte*>(
            static_cast<std::uintptr_t>(std::stoull(source.tickets.at(0).bytes))));
        targets_.push_back(request.targets[copy.target_region]->bytes().data());
      }
    }
    ~FakeFetch() override { cancel(); }

    void start(FetchDone done) override {
      done_ = std::make_shared<FetchDone>(std::move(done));
      const Manner manner = transport_.manner_(++transport_.starts_);
      if (transport_.chores_ == nullptr) return finish(manner);
      // The chore may come after this fetch is gone: then it finds nobody to tell.
      transport_.chores_->push_back([this, manner, waiting = std::weak_ptr(done_)] {
        if (waiting.lock()) finish(manner);
      });
    }

    void cancel() noexcept override {
      if (done_)
        std::exchange(done_, nullptr)->operator()(failure(ErrorCode::unavailable, "cancelled"));
    }

   private:
    void finish(Manner manner) {
      if (manner == Manner::stall || !done_) return;
      const auto done = std::exchange(done_, nullptr);
      if (manner == Manner::fail) return (*done)(failure(ErrorCode::io, "the wire is cut"));
      FetchReport report{0, copies_.size()};
      for (std::size_t i = 0; i < copies_.size(); ++i) report.bytes += copy(i);
      if (manner == Manner::move_little) --report.bytes;
      (*done)(report);
      if (manner == Manner::say_twice) (*done)(report);
    }

    std::uint64_t copy(std::size_t number) {
      const Copy& copy = copies_[number];
      const std::size_t size = size_of(copy.source_type);
      const std::int64_t count = element_count(copy.extent);
      for (std::int64_t i = 0; i < count; ++i) {
        std::int64_t rest = i;
        auto from = static_cast<std::int64_t>(copy.source_offset);
        auto to = static_cast<std::int64_t>(copy.target_offset);
        for (int dim = copy.extent.rank() - 1; dim >= 0; --dim) {
          from += rest % copy.extent[dim] * copy.source_stride[dim];
          to += rest % copy.extent[dim] * copy.target_stride[dim];
          rest /= copy.extent[dim];
        }
        std::memcpy(targets_[number] + to, sources_[number] + from, size);
      }
      return static_cast<std::uint64_t>(count) * size;
    }

    FakeTransport& transport_;
    std::vector<Copy> copies_;
    std::vector<const std::byte*> sources_;
    std::vector<std::byte*> targets_;
    std::shared_ptr<FetchDone> done_;
  };

  std::function<Manner(int)> manner_;
  Chores* chores_;
  int starts_ = 0;
};

}  // namespace weir
