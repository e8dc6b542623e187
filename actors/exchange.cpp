#include "actors/exchange.hpp"

#include "actors/internal/errors.hpp"
#include "actors/internal/planner.hpp"
#include "actors/internal/supervisor.hpp"
#include "actors/internal/system.hpp"
#include "actors/membership.hpp"

namespace weir {
namespace {

/// The owner's thread waits here for what the supervisor answers in time by itself; this is for the
/// case that it never does.
constexpr Duration owner_grace = std::chrono::seconds(120);

class CafExchange final : public Exchange {
 public:
  explicit CafExchange(const ExchangeOptions& options)
      : options_(options), system_(config_.use_network(options.silence_max)) {}

  Result<void> listen() {
    const PlannerActor planner = spawn_planner(system_, options_);
    supervisor_ = spawn_supervisor(system_, options_, planner);
    const auto port =
        system_.middleman().publish(JoinActor{planner}, options_.port, options_.host.c_str(), true);
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
        .receive([&plan](const FormationPtr& formation) { plan = formation->plan; },
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

  void abort(const std::string& why) override {
    caf::anon_send(supervisor_, FailAtom::value, Error{ErrorCode::unavailable, why});
  }

 private:
  ExchangeOptions options_;
  ActorSystemConfig config_;
  caf::actor_system system_;
  SupervisorActor supervisor_;
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
