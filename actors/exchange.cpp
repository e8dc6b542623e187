#include "actors/exchange.hpp"

#include "actors/internal/errors.hpp"
#include "actors/internal/supervisor.hpp"
#include "actors/internal/system.hpp"
#include "actors/membership.hpp"

namespace weir {
namespace {

/// The owner's thread waits here for what the supervisor answers in time by itself; this is for the
/// case that it never does.
constexpr Duration owner_grace = std::chrono::seconds(120);

/// Each call is a request, which the supervisor hands on to the admission actor.
class CafSampling final : public Sampling {
 public:
  CafSampling(caf::actor_system& system, const SupervisorActor& supervisor)
      : system_(system), supervisor_(supervisor) {}

  Result<Assignment> admit(Duration deadline, std::uint64_t prompt_tokens) override {
    return ask<Assignment>(deadline, AdmitAtom::value, deadline, prompt_tokens);
  }
  Result<Assignment> next(const Attempt& over, Duration deadline) override {
    return ask<Assignment>(deadline, NextAtom::value, over, deadline);
  }
  Result<void> extend(const Attempt& attempt, const Span& generated) override {
    return say(ExtendAtom::value, attempt, generated);
  }
  Result<bool> finish(const Attempt& attempt, Duration deadline) override {
    return ask<bool>(deadline, FinishAtom::value, attempt, deadline);
  }
  Result<void> reject(SampleId sample) override { return say(RejectAtom::value, sample); }
  Result<std::vector<Delivered>> take_batch(std::uint64_t count, Duration deadline) override {
    return ask<SampleBatch>(deadline, BatchAtom::value, count, deadline);
  }
  Result<void> no_more_versions() override { return say(LastAtom::value); }

 private:
  template <class T, class... Content>
  Result<T> ask(Duration deadline, const Content&... content) {
    Result<T> result;
    const caf::scoped_actor self(system_);
    self->request(supervisor_, deadline + owner_grace, content...)
        .receive([&result](const T& answer) { result = answer; },
                 [&result](caf::error& error) { result = tl::unexpected(from_caf(error)); });
    return result;
  }
  template <class... Content>
  Result<void> say(const Content&... content) {
    const auto said = ask<caf::ok_atom>(Duration{}, content...);
    if (!said) return failure(said);
    return {};
  }

  caf::actor_system& system_;
  const SupervisorActor& supervisor_;
};

class CafExchange final : public Exchange {
 public:
  explicit CafExchange(const ExchangeOptions& options)
      : options_(options), system_(config_.use_network(options.silence_max)) {}

  Result<void> listen() {
    supervisor_ = spawn_supervisor(system_, options_);
    const auto port = system_.middleman().publish(JoinActor{supervisor_}, options_.port,
                                                  options_.host.c_str(), true);
    if (!port) {
      return failure(ErrorCode::io, "can't listen on " + options_.host + ":" +
                                        std::to_string(options_.port) + ": " +
                                        one_line(caf::to_string(port.error())));
    }
    port_ = *port;
    return {};
  }

  ~CafExchange() override {
    const caf::scoped_actor self(system_);
    const auto done = [](caf::ok_atom) {};
    const auto gone = [](caf::error&) {};
    self->request(supervisor_, owner_grace, EndAtom::value).receive(done, gone);
    supervisor_ = nullptr;
  }

  [[nodiscard]] std::uint16_t port() const noexcept override { return port_; }

  Result<Plan> await_plan() override {
    Result<Plan> plan;
    const caf::scoped_actor self(system_);
    self->request(supervisor_, 2 * options_.join_deadline + owner_grace, PlanAtom::value)
        .receive([&plan](const PlanPtr& whole) { plan = *whole; },
                 [&plan](caf::error& error) { plan = tl::unexpected(from_caf(error)); });
    return plan;
  }

  Result<VersionReport> publish(std::uint64_t version) override {
    Result<VersionReport> report;
    const caf::scoped_actor self(system_);
    self->request(supervisor_, 2 * options_.publish_deadline + owner_grace, PublishAtom::value,
                  version)
        .receive([&report](const VersionReport& answer) { report = answer; },
                 [&report](caf::error& error) { report = tl::unexpected(from_caf(error)); });
    return report;
  }

  Result<ExchangeStatus> status() override {
    Result<ExchangeStatus> status;
    const caf::scoped_actor self(system_);
    self->request(supervisor_, owner_grace, StatusAtom::value)
        .receive([&status](const ExchangeStatus& answer) { status = answer; },
                 [&status](caf::error& error) { status = tl::unexpected(from_caf(error)); });
    return status;
  }

  Sampling& sampling() noexcept override { return sampling_; }

  void abort(const std::string& why) override {
    caf::anon_send(supervisor_, FailAtom::value, Error{ErrorCode::unavailable, why});
  }

 private:
  ExchangeOptions options_;
  ActorSystemConfig config_;
  caf::actor_system system_;
  SupervisorActor supervisor_;
  CafSampling sampling_{system_, supervisor_};
  std::uint16_t port_ = 0;
};

}  // namespace

Result<std::unique_ptr<Exchange>> Exchange::start(const ExchangeOptions& options) {
  if (const auto checked = check(options); !checked) return failure(checked);
  auto exchange = std::make_unique<CafExchange>(options);
  if (const auto listening = exchange->listen(); !listening) return failure(listening);
  return exchange;
}

}  // namespace weir
