#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/transports/contract_rig.hpp"
#include "transports/rdma/rdma_transport.hpp"

namespace weir {

// Goal: a cable that is cut in mid-fetch is reported, or made good by another one, and a cable that
// is mended is used again. Method: the cables of the virtual machine of tests/rdma, cut with ip.

namespace {

/// Far more than moves before a cable can be cut.
constexpr std::size_t blocks = 24;

/// A cable that is whole again after the test, whatever happened.
class Cut {
 public:
  explicit Cut(std::string end) : end_(std::move(end)) { REQUIRE(set("down") == 0); }
  ~Cut() { set("up"); }
  Cut(const Cut&) = delete;
  Cut& operator=(const Cut&) = delete;

 private:
  int set(const std::string& state) const {
    return std::system(("ip link set " + end_ + " " + state).c_str());
  }
  std::string end_;
};

/// What a transport notes, from whatever thread.
class Notes {
 public:
  void add(std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
  }
  bool any(const std::string& words) {
    const std::lock_guard lock(mutex_);
    return std::any_of(lines_.begin(), lines_.end(), [&](const std::string& line) {
      return line.find(words) != std::string::npos;
    });
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TransportSubject subject(const std::string& peer, const std::vector<std::string>& devices,
                         Notes& notes) {
  return {
      .name = "rdma:" + peer, .source_kind = RegionKind::host_private, .make = [devices, &notes] {
        auto transport = make_rdma_transport(
            {.devices = devices, .note = [&notes](std::string_view line) { notes.add(line); }});
        if (!transport) FAIL(transport.error().text);
        return *std::move(transport);
      }};
}

/// The source's bytes again and again, side by side.
std::vector<Copy> many_copies() {
  std::vector<Copy> plan(blocks, whole_copy());
  for (std::size_t i = 0; i < blocks; ++i) plan[i].target_offset = i * rig_source_bytes;
  return plan;
}

bool all_right(const ContractRig& rig) {
  Bytes sent(rig_source_bytes);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = peer_byte(0, i);
  for (std::size_t i = 0; i < blocks; ++i) {
    if (!same_bytes(rig.target->bytes().subspan(i * rig_source_bytes, rig_source_bytes), sent)) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("a cut cable is reported, and a mended one is used again", "[rdma]") {
  Notes notes;
  ContractRig rig(subject("rxe1", {"rxe0"}, notes), blocks * rig_source_bytes);
  const auto fetch = rig.prepare(many_copies());
  REQUIRE(fetch.has_value());
  {
    std::promise<Result<FetchReport>> promise;
    (*fetch)->start([&](Result<FetchReport> result) { promise.set_value(std::move(result)); });
    const Cut cut("eth1");
    Result<FetchReport> result = outcome(promise);
    if (result) result = run(**fetch);  // It was over before the cable was cut.
    REQUIRE_FALSE(result.has_value());
    INFO(result.error().text);
    REQUIRE(result.error().code == ErrorCode::unavailable);
    REQUIRE(result.error().text.find("10.77.0.2") != std::string::npos);
    const auto late = rig.prepare({whole_copy()});
    REQUIRE(late.error().code == ErrorCode::unavailable);
  }
  // The port needs a moment to be up again, and a rail that failed rests for a while.
  Result<FetchReport> result = run(**fetch);
  for (int attempt = 0; attempt < 100 && !result; ++attempt) {
    auto again = rig.prepare({whole_copy()});
    if (again) result = run(**fetch);
  }
  REQUIRE(result.has_value());
  REQUIRE(all_right(rig));
}

TEST_CASE("a fetch goes on over the other rail when one is cut", "[rdma]") {
  Notes notes;
  ContractRig rig(subject("rxe1,rxe3", {"rxe0", "rxe2"}, notes), blocks * rig_source_bytes);
  const auto fetch = rig.prepare(many_copies());
  REQUIRE(fetch.has_value());
  REQUIRE(run(**fetch).has_value());
  {
    rig.wipe();
    std::promise<Result<FetchReport>> promise;
    (*fetch)->start([&](Result<FetchReport> result) { promise.set_value(std::move(result)); });
    const Cut cut("eth1");
    REQUIRE(outcome(promise).has_value());
    REQUIRE(all_right(rig));
    for (int round = 0; round < 2; ++round) {
      rig.wipe();
      REQUIRE(run(**fetch).has_value());
      REQUIRE(all_right(rig));
    }
    REQUIRE(notes.any("going on without it"));
    REQUIRE_FALSE(notes.any("answers rxe0 (10.77.0.1) again"));
  }
  for (int round = 0; round < 40 && !notes.any("answers rxe0"); ++round) {
    REQUIRE(run(**fetch).has_value());
  }
  REQUIRE(notes.any("10.77.0.2 answers rxe0 (10.77.0.1) again"));
}

}  // namespace weir
