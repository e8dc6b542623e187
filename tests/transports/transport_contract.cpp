#include "tests/transports/transport_contract.hpp"

#include <signal.h>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>

#include "tests/transports/contract_rig.hpp"

namespace weir {
namespace {

using Subject = const TransportSubject&;

void moves_exactly(Subject subject) {
  ContractRig rig(subject);
  std::mt19937_64 random(20240608);
  for (int round = 0; round < 6; ++round) {
    const std::vector<Copy> plan = rig.draw_plan(random, 60);
    rig.wipe();
    const auto fetch = rig.prepare(plan);
    REQUIRE(fetch.has_value());
    const Result<FetchReport> report = run(**fetch);
    REQUIRE(report.has_value());
    std::uint64_t bytes = 0;
    for (const Copy& copy : plan) {
      bytes += static_cast<std::uint64_t>(element_count(copy.extent)) * size_of(copy.target_type);
    }
    REQUIRE(report->bytes == bytes);
    REQUIRE(report->copies == plan.size());
    REQUIRE(same_bytes(rig.target->bytes(), rig.expected(plan, 0)));
  }
}

void moves_long_runs(Subject subject) {
  // Longer than any part or buffer; rows whose pitch differs on the two sides; a transpose.
  ContractRig rig(subject, 5 << 20);
  std::vector<Copy> plan{whole_copy()};
  plan.push_back({.source = 1,
                  .target_offset = 2 << 20,
                  .extent = {100, 2500},
                  .source_stride = {10000, 2},
                  .target_stride = {6000, 2}});
  plan.push_back({.source = 1,
                  .source_type = ElementType::f32,
                  .target_offset = 3 << 20,
                  .extent = {500, 512},
                  .source_stride = {4, 2000},
                  .target_stride = {1024, 2}});
  const auto fetch = rig.prepare(plan);
  REQUIRE(fetch.has_value());
  REQUIRE(run(**fetch).has_value());
  REQUIRE(same_bytes(rig.target->bytes(), rig.expected(plan, 0)));
}

void starts_again(Subject subject) {
  ContractRig rig(subject);
  std::mt19937_64 random(5);
  const std::vector<Copy> plan = rig.draw_plan(random, 20);
  const auto fetch = rig.prepare(plan);
  REQUIRE(fetch.has_value());
  for (std::uint64_t round = 1; round <= 5; ++round) {
    for (const auto& peer : rig.peers) peer->fill(round);
    rig.wipe();
    REQUIRE(run(**fetch).has_value());
    REQUIRE(same_bytes(rig.target->bytes(), rig.expected(plan, round)));
  }
}

void cancels(Subject subject) {
  ContractRig rig(subject);
  const std::vector<Copy> plan{whole_copy()};
  const Bytes whole = rig.expected(plan, 0);
  const auto fetch = rig.prepare(plan);
  REQUIRE(fetch.has_value());
  (*fetch)->cancel();  // Nothing is outstanding: no effect on what comes.
  REQUIRE(run(**fetch).has_value());
  (*fetch)->cancel();
  for (int round = 0; round < 20; ++round) {
    rig.wipe();
    std::promise<Result<FetchReport>> promise;
    (*fetch)->start([&](Result<FetchReport> result) { promise.set_value(std::move(result)); });
    (*fetch)->cancel();
    const Result<FetchReport> result = outcome(promise);
    if (result) {
      REQUIRE(same_bytes(rig.target->bytes(), whole));
    } else {
      REQUIRE(result.error() == Error{ErrorCode::unavailable, "the fetch was cancelled"});
    }
  }
  rig.wipe();
  REQUIRE(run(**fetch).has_value());
  REQUIRE(same_bytes(rig.target->bytes(), whole));
}

void dies_quietly(Subject subject) {
  ContractRig rig(subject);
  const Bytes wiped(rig.target->bytes().size(), untouched);
  for (int round = 0; round < 10; ++round) {
    auto fetch = rig.prepare({whole_copy()});
    REQUIRE(fetch.has_value());
    std::atomic<int> calls = 0;
    (*fetch)->start([&calls](const Result<FetchReport>&) { ++calls; });
    fetch->reset();
    REQUIRE(calls == 1);
    rig.wipe();
    REQUIRE(same_bytes(rig.target->bytes(), wiped));
  }
}

void refuses_bad_copies(Subject subject) {
  const ContractRig rig(subject);
  const auto refused = [&rig](const Copy& copy, const std::string& words) {
    const auto fetch = rig.prepare({whole_copy(), copy});
    REQUIRE_FALSE(fetch.has_value());
    REQUIRE(fetch.error().code == ErrorCode::invalid);
    INFO(fetch.error().text);
    REQUIRE(fetch.error().text.find(words) != std::string::npos);
  };
  Copy copy = whole_copy();
  copy.source_offset = 1;
  refused(copy, "of a source region");
  copy = whole_copy();
  copy.target_offset = rig.target->bytes().size();
  refused(copy, "of a target region");
  for (const int which : {0, 1, 2}) {
    copy = whole_copy();
    (which == 0 ? copy.source : which == 1 ? copy.source_region : copy.target_region) = 2;
    refused(copy, "that the request does not have");
  }
  copy = whole_copy();
  copy.target_type = ElementType::f32;
  refused(copy, "can't be converted");
}

void refuses_bad_tickets(Subject subject) {
  ContractRig rig(subject);
  const RegionInfo good = rig.sources[0].regions[0];
  const auto prepared = [&rig](const RegionInfo& info) {
    rig.sources[0].regions[0] = info;
    return rig.prepare({whole_copy()});
  };
  RegionInfo bad = good;
  bad.tickets.clear();
  REQUIRE(prepared(bad).error().code == ErrorCode::invalid);
  bad = good;
  bad.bytes += 1;
  REQUIRE(prepared(bad).error().code == ErrorCode::invalid);
  bad = good;
  bad.kind = RegionKind::device;
  REQUIRE(prepared(bad).error().code == ErrorCode::invalid);
  for (std::size_t length = 0; length < good.tickets[0].bytes.size(); ++length) {
    bad = good;
    bad.tickets[0].bytes.resize(length);
    const auto fetch = prepared(bad);
    REQUIRE(fetch.error().code == ErrorCode::invalid);
    REQUIRE(fetch.error().text.starts_with("can't read region 0 of trainer 0.0: "));
  }
  std::mt19937_64 random(9);
  for (int round = 0; round < 300; ++round) {
    bad = good;
    std::string& bytes = bad.tickets[0].bytes;
    char& byte = bytes[random() % bytes.size()];
    byte = static_cast<char>(static_cast<unsigned char>(byte) ^ (1U << (random() % 8)));
    static_cast<void>(prepared(bad));  // Any outcome but a crash or a hang.
  }
  REQUIRE(prepared(good).has_value());
}

void moves_nothing(Subject subject) {
  ContractRig rig(subject);
  const auto fetch = rig.prepare({});
  REQUIRE(fetch.has_value());
  for (int round = 0; round < 3; ++round) {
    const Result<FetchReport> report = run(**fetch);
    REQUIRE(report.has_value());
    REQUIRE(report->bytes == 0);
    REQUIRE(report->copies == 0);
  }
  REQUIRE(same_bytes(rig.target->bytes(), rig.expected({}, 0)));
}

void survives_death(Subject subject) {
  ContractRig rig(subject);
  const std::vector<Copy> plan{whole_copy()};
  const auto fetch = rig.prepare(plan);
  REQUIRE(fetch.has_value());
  std::promise<Result<FetchReport>> promise;
  (*fetch)->start([&](Result<FetchReport> result) { promise.set_value(std::move(result)); });
  rig.peers[0]->kill();
  // A region that was mapped before stays whole after its owner's death: success means its bytes.
  for (Result<FetchReport> result : {outcome(promise), run(**fetch)}) {
    if (result) {
      REQUIRE(same_bytes(rig.target->bytes(), rig.expected(plan, 0)));
    } else {
      REQUIRE(result.error().code == ErrorCode::unavailable);
    }
  }
  const auto late = rig.prepare(plan);
  REQUIRE(late.error().code == ErrorCode::unavailable);
  REQUIRE(late.error().text.find("has ended") != std::string::npos);
  rig.wipe();
  Copy other = whole_copy();
  other.source = 1;
  const auto rest = rig.prepare({other});
  REQUIRE(rest.has_value());
  REQUIRE(run(**rest).has_value());
}

void survives_a_stopped_peer(Subject subject) {
  ContractRig rig(subject);
  const std::vector<Copy> plan{whole_copy()};
  const auto fetch = rig.prepare(plan);
  REQUIRE(fetch.has_value());
  ::kill(rig.peers[0]->pid(), SIGSTOP);
  const Result<FetchReport> result = run(**fetch);
  ::kill(rig.peers[0]->pid(), SIGCONT);
  if (result) {
    REQUIRE(same_bytes(rig.target->bytes(), rig.expected(plan, 0)));
  } else {
    REQUIRE(result.error().code == ErrorCode::timeout);
  }
  REQUIRE(run(**fetch).has_value());
  REQUIRE(same_bytes(rig.target->bytes(), rig.expected(plan, 0)));
}

void runs_many_at_once(Subject subject) {
  const ContractRig rig(subject);
  constexpr std::size_t count = 12;
  Bytes sent(rig_source_bytes);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = peer_byte(0, i);
  std::vector<std::unique_ptr<Region>> targets;
  std::vector<std::unique_ptr<Fetch>> fetches;
  std::array<std::promise<Result<FetchReport>>, count> promises;
  for (std::size_t i = 0; i < count; ++i) {
    targets.push_back(std::move(*Region::allocate({.bytes = rig_source_bytes})));
    Region* const target[] = {targets.back().get()};
    Copy copy = whole_copy();
    copy.source = static_cast<std::uint32_t>(i % 2);
    auto fetch = rig.transport->prepare(
        {.copies = std::span(&copy, 1), .sources = rig.sources, .targets = target});
    REQUIRE(fetch.has_value());
    fetches.push_back(std::move(*fetch));
  }
  for (std::size_t i = 0; i < count; ++i) {
    fetches[i]->start(
        [&promises, i](Result<FetchReport> result) { promises[i].set_value(std::move(result)); });
  }
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(outcome(promises[i]).has_value());
    REQUIRE(same_bytes(targets[i]->bytes(), sent));
  }
}

void starts_from_done(Subject subject) {
  const ContractRig rig(subject);
  const auto fetch = rig.prepare({whole_copy()});
  REQUIRE(fetch.has_value());
  std::promise<Result<FetchReport>> promise;
  int left = 5;
  FetchDone again = [&](Result<FetchReport> result) {
    if (--left == 0 || !result) return promise.set_value(std::move(result));
    (*fetch)->start(again);
  };
  (*fetch)->start(again);
  REQUIRE(outcome(promise).has_value());
  REQUIRE(left == 0);
}

void reads_its_own_process(Subject subject) {
  const auto transport = subject.make();
  const auto source =
      std::move(*Region::allocate({.kind = subject.source_kind, .bytes = rig_source_bytes}));
  const auto target = std::move(*Region::allocate({.bytes = rig_source_bytes}));
  for (std::size_t i = 0; i < rig_source_bytes; ++i) source->bytes()[i] = peer_byte(3, i);
  const auto ticket = transport->expose(*source);
  REQUIRE(ticket.has_value());
  REQUIRE(transport->expose(*source) == *ticket);
  const PlanSource plan_source{.shard = {},
                               .regions = {{subject.source_kind, rig_source_bytes, {*ticket}}}};
  const Copy copy = whole_copy();
  Region* const targets[] = {target.get()};
  const auto fetch = transport->prepare(
      {.copies = std::span(&copy, 1), .sources = std::span(&plan_source, 1), .targets = targets});
  REQUIRE(fetch.has_value());
  REQUIRE(run(**fetch).has_value());
  REQUIRE(same_bytes(source->bytes(), target->bytes()));
  transport->withdraw(*source);
  transport->withdraw(*source);  // Not exposed any more: no effect.
}

void withdraws(Subject subject) {
  ContractRig rig(subject);
  const std::vector<Copy> plan{whole_copy()};
  const auto fetch = rig.prepare(plan);
  REQUIRE(fetch.has_value());
  REQUIRE(run(**fetch).has_value());
  rig.peers[0]->withdraw();
  // Peers that read on their own are kept away by leases; the others hear of it.
  const Result<FetchReport> result = run(**fetch);
  if (!result) {
    REQUIRE(result.error().code == ErrorCode::unavailable);
    REQUIRE(result.error().text.find("has withdrawn its region") != std::string::npos);
  }
}

}  // namespace

std::vector<ContractCheck> transport_contract() {
  return {
      {"a fetch writes exactly the planned bytes, converted, and reports them", moves_exactly},
      {"runs longer than any buffer, and transposes, arrive whole", moves_long_runs},
      {"a prepared fetch moves each version anew", starts_again},
      {"a cancelled fetch reports once, and starts again as if nothing had been", cancels},
      {"a fetch destroyed at work reports once and never writes again", dies_quietly},
      {"copies outside of their regions are refused", refuses_bad_copies},
      {"tickets that are missing, garbled or another's are refused", refuses_bad_tickets},
      {"a fetch of nothing succeeds", moves_nothing},
      {"a killed peer ends in an error or in its bytes, and hurts no other source", survives_death},
      {"a stopped peer ends in a timeout or in its bytes", survives_a_stopped_peer},
      {"many fetches run at once", runs_many_at_once},
      {"a fetch may be started again from its own report", starts_from_done},
      {"a region of the same process can be read", reads_its_own_process},
      {"a withdrawn region is not served any more", withdraws},
  };
}

}  // namespace weir
