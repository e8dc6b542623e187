#include "actors/admission_policy.hpp"

#include <algorithm>
#include <cmath>

namespace weir {
namespace {

/// Versions may be numbered by a clock: nothing may wrap, whatever they are.
std::uint64_t plus(std::uint64_t left, std::uint64_t right) {
  return left > unlimited - right ? unlimited : left + right;
}

std::uint64_t times(std::uint64_t left, std::uint64_t right) {
  return right != 0 && left > unlimited / right ? unlimited : left * right;
}

std::uint64_t minus(std::uint64_t left, std::uint64_t right) {
  return left > right ? left - right : 0;
}

/// The samples of all steps that may have begun when batches run `ahead` of the version.
std::uint64_t allowed(const AdmissionView& view, std::uint64_t ahead, std::uint64_t batch) {
  return times(plus(plus(ahead, view.pace() - view.recovered_version), 1), batch);
}

/// Whether it began before version `reference` − `lag`. One that was not dispatched has not begun.
bool is_before(const Sample& sample, std::uint64_t reference, std::uint64_t lag) {
  return !sample.spans.empty() && minus(reference, sample.spans.front().version) > lag;
}

std::vector<SampleId> in_order_of_admission(const AdmissionView& view) {
  std::vector<SampleId> order(view.finished.begin(), view.finished.end());
  std::sort(order.begin(), order.end());
  return order;
}

class ArealPolicy final : public AdmissionPolicy {
 public:
  explicit ArealPolicy(const ArealOptions& options)
      : AdmissionPolicy({.staleness_max = options.eta,
                         .waiting_max = (options.eta + 1) * options.batch,
                         .batch_max = options.batch,
                         .queue_least = options.batch}),
        options_(options) {}

  [[nodiscard]] std::uint64_t capacity(const AdmissionView& view) const override {
    const std::uint64_t concurrent =
        minus(std::max<std::uint64_t>(1, options_.max_concurrent), view.running);
    const std::uint64_t fresh =
        minus(allowed(view, options_.eta, options_.batch), view.accepted + view.running);
    return std::min(concurrent, fresh);
  }

  [[nodiscard]] std::vector<SampleId> hand_over_order(const AdmissionView& view) const override {
    return in_order_of_admission(view);
  }

 private:
  ArealOptions options_;
};

class VerlPolicy final : public AdmissionPolicy {
 public:
  explicit VerlPolicy(const VerlOptions& options)
      : AdmissionPolicy({.batch_max = options.batch,
                         .queue_least = options.batch,
                         .when_full = QueueFull::drop_oldest}),
        required_max_(static_cast<std::uint64_t>(std::floor(
            // Rounded like verl's own product: from the left.
            static_cast<double>(options.batch) * (1.0 + options.staleness) *
            static_cast<double>(options.sync_steps)))) {}

  [[nodiscard]] std::uint64_t capacity(const AdmissionView& view) const override {
    // A hand-over only moves a sample from the living to the delivered, so that the sum is what was
    // alive at the publication plus what was admitted since. After the last publication nothing
    // would ever take the delivered ones out again.
    const std::uint64_t delivered = view.more_versions ? view.delivered_since_version : 0;
    const std::uint64_t stale = view.running + view.finished.size() + delivered;
    return minus(required_max_, std::max<std::uint64_t>(view.finished.size(), stale));
  }

 private:
  std::uint64_t required_max_;
};

class VerlSpanPolicy final : public AdmissionPolicy {
 public:
  /// The queue has room for every living group: one that the trainer waits for can always finish.
  explicit VerlSpanPolicy(const VerlSpanOptions& options)
      : AdmissionPolicy({.batch_max = options.batch, .queue_least = options.groups}),
        options_(options) {}

  [[nodiscard]] std::uint64_t capacity(const AdmissionView& view) const override {
    return minus(options_.groups, view.running + view.finished.size());
  }

  [[nodiscard]] Verdict judge(const AdmissionView& view, const Sample& sample) const override {
    const bool old = options_.old == OldGroups::drop && sample.phase == SamplePhase::finished &&
                     span_of(view, sample) > options_.threshold;
    return old ? Verdict::evict : Verdict::keep;
  }

  [[nodiscard]] std::vector<SampleId> hand_over_order(const AdmissionView& view) const override {
    const bool waits =
        options_.old == OldGroups::wait &&
        std::any_of(view.samples.begin(), view.samples.end(), [&](const auto& entry) {
          return entry.second.phase != SamplePhase::finished &&
                 span_of(view, entry.second) >= options_.threshold;
        });
    if (waits) return {};
    return AdmissionPolicy::hand_over_order(view);
  }

 private:
  static std::uint64_t span_of(const AdmissionView& view, const Sample& sample) {
    return view.batches - sample.step + 1;
  }

  VerlSpanOptions options_;
};

class NemoPolicy : public AdmissionPolicy {
 public:
  explicit NemoPolicy(const NemoOptions& options, const PolicyLimits& limits)
      : AdmissionPolicy(limits), options_(options) {}

  [[nodiscard]] std::uint64_t capacity(const AdmissionView& view) const override {
    const std::uint64_t fresh =
        minus(allowed(view, options_.window, options_.batch), view.accepted + view.running);
    const std::uint64_t room =
        minus(options_.batch * (options_.window + 1), view.running + view.finished.size());
    return std::min(fresh, room);
  }

 protected:
  [[nodiscard]] const NemoOptions& options() const noexcept { return options_; }

 private:
  NemoOptions options_;
};

class NemoInOrder final : public NemoPolicy {
 public:
  /// The queue has room for every step of the window: those for a later step can't shut out those
  /// that the trainer waits for.
  explicit NemoInOrder(const NemoOptions& options)
      : NemoPolicy(options, {.staleness_max = options.window,
                             .batch_max = options.batch,
                             .queue_least = options.batch * (options.window + 1)}) {}

  [[nodiscard]] std::uint64_t capacity(const AdmissionView& view) const override {
    std::uint64_t room = 0;
    for (const auto& [step, vacant] : vacancies(view)) room += vacant;
    return room;
  }

  /// The earliest step that lacks one: what was rejected is made up for where it is missed.
  [[nodiscard]] std::uint64_t target(const AdmissionView& view) const override {
    for (const auto& [step, vacant] : vacancies(view)) {
      if (vacant > 0) return step;
    }
    return view.step();
  }

  /// Those in generation are left to finish; they are evicted then.
  [[nodiscard]] Verdict judge(const AdmissionView& view, const Sample& sample) const override {
    const bool missed = sample.phase != SamplePhase::generating && sample.target < view.step();
    return missed ? Verdict::evict : Verdict::keep;
  }

  [[nodiscard]] std::vector<SampleId> hand_over_order(const AdmissionView& view) const override {
    std::vector<SampleId> order;
    for (const SampleId id : view.finished) {
      if (view.samples.at(id).target == view.step()) order.push_back(id);
    }
    return order;
  }

 private:
  /// For each step that may have begun: how many samples it lacks.
  [[nodiscard]] std::map<std::uint64_t, std::uint64_t> vacancies(const AdmissionView& view) const {
    std::map<std::uint64_t, std::uint64_t> vacant;
    const std::uint64_t ahead = view.step() - view.pace();
    for (std::uint64_t i = ahead; i <= options().window; ++i) {
      vacant.emplace(plus(view.pace(), i), options().batch);
    }
    for (const auto& [id, sample] : view.samples) {
      const auto found = vacant.find(sample.target);
      if (found != vacant.end() && found->second > 0) --found->second;
    }
    return vacant;
  }
};

class NemoByVersion final : public NemoPolicy {
 public:
  explicit NemoByVersion(const NemoOptions& options)
      : NemoPolicy(options,
                   {.staleness_max =
                        options.sampler == NemoSampler::ready_first ? unlimited : options.window,
                    .batch_max = options.batch,
                    .queue_least = options.batch}) {}

  [[nodiscard]] Verdict judge(const AdmissionView& view, const Sample& sample) const override {
    const NemoSampler sampler = options().sampler;
    const bool evicts = sampler == NemoSampler::windowed || (sampler == NemoSampler::weight_fifo &&
                                                             sample.phase == SamplePhase::finished);
    return evicts && is_before(sample, view.version, options().window) ? Verdict::evict
                                                                       : Verdict::keep;
  }

  [[nodiscard]] std::vector<SampleId> hand_over_order(const AdmissionView& view) const override {
    std::vector<SampleId> order = AdmissionPolicy::hand_over_order(view);
    if (options().sampler == NemoSampler::weight_fifo) {
      std::stable_sort(order.begin(), order.end(), [&](SampleId left, SampleId right) {
        return view.samples.at(left).spans.front().version <
               view.samples.at(right).spans.front().version;
      });
    }
    return order;
  }
};

class PrimePolicy final : public AdmissionPolicy {
 public:
  explicit PrimePolicy(const PrimeOptions& options)
      : AdmissionPolicy({.staleness_max = options.max_off_policy}), options_(options) {}

  [[nodiscard]] std::uint64_t capacity(const AdmissionView& view) const override {
    return is_open(view) ? minus(options_.max_concurrent, view.running) : 0;
  }

  [[nodiscard]] Verdict judge(const AdmissionView& view, const Sample& sample) const override {
    // Fresher samples than those of the last version never come: steps that publish nothing age
    // none.
    const std::uint64_t step = view.more_versions ? view.batches : view.version;
    return is_before(sample, step, options_.max_off_policy) ? Verdict::evict : Verdict::keep;
  }

  [[nodiscard]] std::vector<SampleId> hand_over_order(const AdmissionView& view) const override {
    if (!is_open(view)) return {};
    return AdmissionPolicy::hand_over_order(view);
  }

 private:
  /// With n − 1 = batches, both of prime-rl's gates are this one.
  [[nodiscard]] bool is_open(const AdmissionView& view) const {
    return minus(view.batches, view.pace()) <= options_.max_lag;
  }

  PrimeOptions options_;
};

class PipelinePolicy final : public AdmissionPolicy {
 public:
  explicit PipelinePolicy(const PipelineOptions& options)
      : AdmissionPolicy({.batch_max = options.batch, .queue_least = options.batch}),
        options_(options) {}

  [[nodiscard]] std::uint64_t capacity(const AdmissionView& view) const override {
    const std::uint64_t lead = (options_.max_lag + options_.attempts - 1) / options_.attempts;
    return minus(plus(lead, allowed(view, 0, options_.batch)), view.accepted + view.running);
  }

  [[nodiscard]] bool too_old(const AdmissionView& view, const Sample& sample) const override {
    const std::uint64_t versions = view.version - sample.spans.front().version;
    return times(versions, options_.batch * options_.attempts) > options_.max_lag;
  }

 private:
  PipelineOptions options_;
};

class SemaphorePolicy final : public AdmissionPolicy {
 public:
  explicit SemaphorePolicy(const SemaphoreOptions& options)
      : AdmissionPolicy({.batch_max = options.size, .queue_least = options.size}),
        options_(options) {}

  [[nodiscard]] std::uint64_t capacity(const AdmissionView& view) const override {
    if (options_.until == PermitUntil::taken) {
      return minus(options_.size, view.running + view.finished.size());
    }
    return view.finished.size() >= options_.size ? 0 : minus(options_.size, view.running);
  }

 private:
  SemaphoreOptions options_;
};

struct Maker {
  using Policy = std::unique_ptr<AdmissionPolicy>;

  Policy operator()(const ArealOptions& it) const { return std::make_unique<ArealPolicy>(it); }
  Policy operator()(const VerlOptions& it) const { return std::make_unique<VerlPolicy>(it); }
  Policy operator()(const VerlSpanOptions& it) const {
    return std::make_unique<VerlSpanPolicy>(it);
  }
  Policy operator()(const NemoOptions& it) const {
    if (it.sampler == NemoSampler::in_order) return std::make_unique<NemoInOrder>(it);
    return std::make_unique<NemoByVersion>(it);
  }
  Policy operator()(const PrimeOptions& it) const { return std::make_unique<PrimePolicy>(it); }
  Policy operator()(const PipelineOptions& it) const {
    return std::make_unique<PipelinePolicy>(it);
  }
  Policy operator()(const SemaphoreOptions& it) const {
    return std::make_unique<SemaphorePolicy>(it);
  }
};

}  // namespace

std::uint64_t AdmissionView::pace() const noexcept {
  return more_versions ? version : step();
}

std::uint64_t AdmissionView::step() const noexcept {
  return std::max(version, batches);
}

std::uint64_t AdmissionPolicy::target(const AdmissionView& view) const {
  return view.step();
}

Verdict AdmissionPolicy::judge(const AdmissionView& /*view*/, const Sample& /*sample*/) const {
  return Verdict::keep;
}

std::vector<SampleId> AdmissionPolicy::hand_over_order(const AdmissionView& view) const {
  return {view.finished.begin(), view.finished.end()};
}

bool AdmissionPolicy::too_old(const AdmissionView& /*view*/, const Sample& /*sample*/) const {
  return false;
}

Result<std::unique_ptr<AdmissionPolicy>> make_policy(const PolicyOptions& options) {
  if (auto sound = check(options); !sound) return failure(sound);
  return std::visit(Maker{}, options);
}

}  // namespace weir
