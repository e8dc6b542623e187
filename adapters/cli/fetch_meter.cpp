#include "adapters/cli/fetch_meter.hpp"

#include <utility>

namespace weir::cli {
namespace {

class MeteredFetch final : public Fetch {
 public:
  MeteredFetch(std::unique_ptr<Fetch> fetch, FetchMeter& meter)
      : fetch_(std::move(fetch)), meter_(meter) {}

  void start(FetchDone done) override {
    meter_.fetch_begins();
    fetch_->start([&meter = meter_, done = std::move(done)](Result<FetchReport> report) {
      meter.fetch_ends();
      done(std::move(report));
    });
  }
  void cancel() noexcept override { fetch_->cancel(); }

 private:
  std::unique_ptr<Fetch> fetch_;
  FetchMeter& meter_;
};

class MeteredTransport final : public Transport {
 public:
  MeteredTransport(Transport& transport, FetchMeter& meter)
      : transport_(transport), meter_(meter) {}

  [[nodiscard]] std::string_view name() const noexcept override { return transport_.name(); }
  [[nodiscard]] bool reads(RegionKind source) const noexcept override {
    return transport_.reads(source);
  }
  [[nodiscard]] bool writes(RegionKind target) const noexcept override {
    return transport_.writes(target);
  }
  Result<RegionInfo::Ticket> expose(const Region& region) override {
    return transport_.expose(region);
  }
  void withdraw(const Region& region) noexcept override { transport_.withdraw(region); }
  Result<std::unique_ptr<Fetch>> prepare(const FetchRequest& request) override {
    auto fetch = transport_.prepare(request);
    if (!fetch) return fetch;
    return std::make_unique<MeteredFetch>(*std::move(fetch), meter_);
  }

 private:
  Transport& transport_;
  FetchMeter& meter_;
};

}  // namespace

void FetchMeter::count() {
  const std::chrono::nanoseconds now = clock_.now();
  const auto passed = static_cast<std::uint64_t>((now - counted_until_).count());
  counted_until_ = now;
  if (fetches_ == 0) return;
  record_.fetch_nanoseconds += passed;
  if (generating_) record_.overlap_nanoseconds += passed;
}

void FetchMeter::fetch_begins() {
  const std::lock_guard lock(mutex_);
  count();
  ++fetches_;
}

void FetchMeter::fetch_ends() {
  const std::lock_guard lock(mutex_);
  count();
  --fetches_;
}

void FetchMeter::generates(bool now) {
  const std::lock_guard lock(mutex_);
  count();
  generating_ = now;
}

std::unique_ptr<Transport> metered(Transport& transport, FetchMeter& meter) {
  return std::make_unique<MeteredTransport>(transport, meter);
}

}  // namespace weir::cli
