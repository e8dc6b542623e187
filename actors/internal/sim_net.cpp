#include "actors/internal/sim_net.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/assert.hpp"

namespace weir::sim {

using namespace std::chrono_literals;

constexpr std::int64_t million = 1'000'000;

// ---- processes ---------------------------------------------------------------------------------

Process::Process(std::string name, Random& random)
    : name_(std::move(name)),
      system_(config_.use_virtual_time()),
      scheduler_(dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler())),
      offset_(random.between(0, 1'000'000'000)),
      parts_per_million_(random.between(-50'000, 50'000)) {}

Duration Process::local(Duration world) const {
  // In two parts, since the product would overflow after a few days.
  return offset_ + world + world / million * parts_per_million_ +
         world % million * parts_per_million_ / million;
}

std::optional<Duration> Process::next_timeout() {
  auto& schedule = scheduler().clock().schedule();
  if (schedule.empty()) return std::nullopt;
  const Duration due = schedule.begin()->first.time_since_epoch();
  // The first moment of the world at which the clock shows at least that, from just before it on:
  // divisions that round down put it a few nanoseconds off.
  const std::int64_t parts = million + parts_per_million_;
  const Duration gone = std::max(Duration{}, due - offset_);
  Duration world =
      std::max(Duration{}, gone / parts * million + gone % parts * million / parts - 3ns);
  while (local(world) < due) world += 1ns;
  return world;
}

void Process::advance(Duration now) {
  auto& clock = scheduler().clock();
  const auto then = caf::actor_clock::time_point(
      std::chrono::duration_cast<caf::actor_clock::duration_type>(local(now)));
  clock.current_time = std::max(clock.current_time, then);
  clock.trigger_expired_timeouts();
}

// ---- connections -------------------------------------------------------------------------------

/// An actor of the other end, as the actors of this end see it.
class Link final : public caf::actor_proxy {
 public:
  Link(caf::actor_config& config, Connection& connection, int end, caf::strong_actor_ptr target)
      : caf::actor_proxy(config), connection_(&connection), end_(end), target_(std::move(target)) {}

  void enqueue(caf::mailbox_element_ptr what, caf::execution_unit* context) override;
  void kill_proxy(caf::execution_unit* context, caf::error reason) override {
    connection_ = nullptr;
    target_ = nullptr;
    cleanup(std::move(reason), context);
  }

 private:
  Connection* connection_;  ///< Null once it is closed.
  int end_;                 ///< Where this is.
  caf::strong_actor_ptr target_;
};

/// Two processes and the messages between them, each way in order.
class Connection {
 public:
  static constexpr int member_end = 0;
  static constexpr int exchange_end = 1;

  Connection(Net& net, Process& member, Process& exchange) : net_(net), ends_{&member, &exchange} {}

  /// The handle by which end `end` reaches `target` of the other end.
  caf::strong_actor_ptr proxy(int end, const caf::strong_actor_ptr& target) {
    auto& known = proxies_.at(static_cast<std::size_t>(end))[target->id()];
    if (!known) {
      caf::actor_system& system = ends_.at(static_cast<std::size_t>(end))->system();
      caf::actor_config config;
      known = caf::make_actor<Link, caf::strong_actor_ptr>(system.next_actor_id(), system.node(),
                                                           &system, config, *this, end, target);
    }
    return known;
  }

  void send(int end, const caf::strong_actor_ptr& target, const caf::strong_actor_ptr& sender,
            caf::message_id id, const caf::message& content) {
    Duration delay(net_.random().between(0, net_.delay_max.count()));
    if (net_.random().chance(1, 50)) delay *= 10;
    Duration& last = last_.at(static_cast<std::size_t>(end));
    last = std::max(last, net_.now() + delay);
    queues_.at(static_cast<std::size_t>(end)).push_back({target, sender, id, content});
    net_.after(last - net_.now(), [this, end] { deliver(end); });
  }

  void close() {
    if (!std::exchange(open_, false)) return;
    for (auto& queue : queues_) queue.clear();
    for (const int end : {member_end, exchange_end}) tell(end);
  }

  /// An end that is stopped hears of it when it goes on.
  void tell(int end) {
    Process& process = *ends_.at(static_cast<std::size_t>(end));
    if (open_ || !process.alive || process.hung) return;
    for (auto& [id, proxy] : std::exchange(proxies_.at(static_cast<std::size_t>(end)), {})) {
      dynamic_cast<caf::actor_proxy*>(proxy->get())
          ->kill_proxy(nullptr, caf::exit_reason::remote_link_unreachable);
    }
  }

  /// At the end of the world.
  void forget() {
    open_ = false;
    for (auto& queue : queues_) queue.clear();
    for (auto& proxies : proxies_) {
      for (auto& [id, proxy] : std::exchange(proxies, {})) {
        dynamic_cast<caf::actor_proxy*>(proxy->get())
            ->kill_proxy(nullptr, caf::exit_reason::remote_link_unreachable);
      }
    }
  }

  [[nodiscard]] bool open() const noexcept { return open_; }
  [[nodiscard]] bool has(const Process& process) const noexcept {
    return ends_[0] == &process || ends_[1] == &process;
  }
  [[nodiscard]] Process& member() const noexcept { return *ends_[member_end]; }

  /// What waited while the connection was cut or its receiver stopped.
  void go_on() {
    for (const int end : {member_end, exchange_end}) {
      for (std::size_t i = std::exchange(held_.at(static_cast<std::size_t>(end)), 0); i != 0; --i) {
        net_.after(Duration{}, [this, end] { deliver(end); });
      }
    }
  }

 private:
  struct Packet {
    caf::strong_actor_ptr target;
    caf::strong_actor_ptr sender;
    caf::message_id id;
    caf::message content;
  };

  /// The oldest message that was sent from `end`.
  void deliver(int end) {
    if (!open_) return;
    auto& queue = queues_.at(static_cast<std::size_t>(end));
    if (queue.empty()) return;
    const auto& [to_exchange, to_member] = net_.cuts_[member().name()];
    const Duration cut_until = end == member_end ? to_exchange : to_member;
    if (net_.now() < cut_until) {
      ++held_.at(static_cast<std::size_t>(end));
      return;
    }
    const Packet packet = std::move(queue.front());
    queue.pop_front();
    ++net_.messages_;
    const int other = 1 - end;
    const auto sender = packet.sender ? proxy(other, packet.sender) : nullptr;
    packet.target->enqueue(caf::make_mailbox_element(sender, packet.id, {}, packet.content),
                           nullptr);
  }

  Net& net_;
  std::array<Process*, 2> ends_;
  std::array<std::deque<Packet>, 2> queues_;
  std::array<Duration, 2> last_{};
  std::array<std::size_t, 2> held_{};
  std::array<std::map<caf::actor_id, caf::strong_actor_ptr>, 2> proxies_;
  bool open_ = true;
};

void Link::enqueue(caf::mailbox_element_ptr what, caf::execution_unit*) {
  if (connection_ == nullptr || !connection_->open()) {
    bounce(what);
    return;
  }
  connection_->send(end_, target_, what->sender, what->mid, what->move_content_to_message());
}

// ---- the world ---------------------------------------------------------------------------------

Net::Net(std::uint64_t seed) : random_(seed) {}

Net::~Net() {
  end();
}

void Net::end() {
  events_.clear();
  for (const auto& connection : connections_) connection->forget();
  for (const auto& process : processes_) {
    for (const caf::strong_actor_ptr& actor : process->actors) {
      caf::anon_send_exit(actor, caf::exit_reason::kill);
    }
    process->actors.clear();
    auto& scheduler = process->scheduler();
    scheduler.jobs.insert(scheduler.jobs.end(), process->waiting.begin(), process->waiting.end());
    process->waiting.clear();
    while (scheduler.try_run_once()) {
    }
    scheduler.clock().cancel_all();
    while (scheduler.try_run_once()) {
    }
  }
  // Ended actors may have been told of more proxies.
  for (const auto& connection : connections_) connection->forget();
}

void Net::after(Duration delay, std::function<void()> then) {
  events_.emplace(std::pair(now_ + delay, next_event_++), std::move(then));
}

bool Net::step() {
  ++steps_;
  while (true) {
    std::size_t choices = 0;
    for (const auto& process : processes_) {
      if (process->alive && !process->hung) choices += process->scheduler().jobs.size();
    }
    const auto due = events_.upper_bound({now_, ~std::uint64_t{0}});
    const auto events = static_cast<std::size_t>(std::distance(events_.begin(), due));
    if (choices + events != 0) {
      std::size_t choice = random_.below(choices + events);
      trace_.add(choice);
      if (choice < events) {
        const auto chosen = std::next(events_.begin(), static_cast<std::ptrdiff_t>(choice));
        const auto then = std::move(chosen->second);
        events_.erase(chosen);
        then();
        return true;
      }
      choice -= events;
      for (const auto& process : processes_) {
        if (!process->alive || process->hung) continue;
        const std::size_t jobs = process->scheduler().jobs.size();
        if (choice >= jobs) {
          choice -= jobs;
          continue;
        }
        run(*process, choice);
        return true;
      }
    }
    std::optional<Duration> next;
    if (!events_.empty()) next = events_.begin()->first.first;
    for (const auto& process : processes_) {
      if (!process->alive || process->hung) continue;
      const auto timeout = process->next_timeout();
      if (timeout && (!next || *timeout < *next)) next = timeout;
    }
    if (!next) return false;
    now_ = std::max(now_, *next);
    for (const auto& process : processes_) {
      if (process->alive && !process->hung) process->advance(now_);
    }
  }
}

/// One message, or none where the actor has to wait.
void Net::run(Process& process, std::size_t job) {
  auto& jobs = process.scheduler().jobs;
  std::swap(jobs.front(), jobs[job]);
  const auto* actor = dynamic_cast<caf::scheduled_actor*>(jobs.front());
  const auto stalled = actor == nullptr ? process.stalled.end() : process.stalled.find(actor->id());
  if (stalled == process.stalled.end()) {
    process.scheduler().try_run_once();
    return;
  }
  process.waiting.push_back(jobs.front());
  jobs.pop_front();
}

bool Net::stall(Process& process, Duration time) {
  const auto& jobs = process.scheduler().jobs;
  if (!process.alive || process.hung || jobs.empty()) return false;
  const auto* actor = dynamic_cast<caf::scheduled_actor*>(jobs[random_.below(jobs.size())]);
  if (actor == nullptr || !process.stalled.insert(actor->id()).second) return false;
  after(time, [own = &process, id = actor->id()] {
    own->stalled.erase(id);
    const auto first = std::partition(own->waiting.begin(), own->waiting.end(), [id](auto* job) {
      return dynamic_cast<caf::scheduled_actor*>(job)->id() != id;
    });
    auto& runnable = own->scheduler().jobs;
    runnable.insert(runnable.end(), first, own->waiting.end());
    own->waiting.erase(first, own->waiting.end());
  });
  return true;
}

Process& Net::add_process(const std::string& name) {
  processes_.push_back(std::make_unique<Process>(name, random_));
  processes_.back()->advance(now_);
  return *processes_.back();
}

void Net::kill(Process& process, bool notice) {
  if (!process.alive) return;
  process.alive = false;
  // A killed process's kernel closes its connections; a host without power says nothing.
  const Duration delay = notice ? Duration(random_.between(0, 20'000'000)) : silence;
  after(delay, [this, own = &process] { close_of(*own); });
}

void Net::hang(Process& process, Duration time) {
  if (!process.alive || process.hung) return;
  process.hung = true;
  Process* own = &process;
  if (time >= silence) {
    after(silence, [this, own] {
      if (own->hung) close_of(*own);
    });
  }
  after(time, [this, own] {
    own->hung = false;
    own->advance(now_);
    for (const auto& connection : connections_) {
      if (!connection->has(*own)) continue;
      connection->tell(Connection::member_end);
      connection->tell(Connection::exchange_end);
    }
  });
}

void Net::close_of(Process& process) {
  for (const auto& connection : connections_) {
    if (connection->has(process)) connection->close();
  }
}

caf::strong_actor_ptr Net::connect(Process& member, Process& exchange,
                                   const caf::strong_actor_ptr& door) {
  const auto& [to_exchange, to_member] = cuts_[member.name()];
  if (!exchange.alive || exchange.hung || now_ < to_exchange || now_ < to_member) return nullptr;
  for (const auto& connection : connections_) {
    if (connection->open() && connection->has(member) && connection->has(exchange)) {
      return connection->proxy(Connection::member_end, door);
    }
  }
  connections_.push_back(std::make_unique<Connection>(*this, member, exchange));
  return connections_.back()->proxy(Connection::member_end, door);
}

void Net::cut(Process& member, Way way, Duration time) {
  auto& [to_exchange, to_member] = cuts_[member.name()];
  if (way != Way::to_member) to_exchange = now_ + time;
  if (way != Way::to_exchange) to_member = now_ + time;
  Process* own = &member;
  if (time >= silence) after(silence, [this, own] { close_of(*own); });
  after(time, [this, own] {
    for (const auto& connection : connections_) {
      if (connection->has(*own)) connection->go_on();
    }
  });
}

}  // namespace weir::sim
