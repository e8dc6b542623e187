#include "actors/internal/transport_worker.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/shown_results.hpp"
#include "tests/actors/worker_bench.hpp"

namespace weir {

// Goal: a fetch brings every byte from where its order says, by chunks and within its window, and
// whatever goes wrong is told when nothing is written any more.
// Method: one worker under CAF's testing scheduler, with a transport whose copies are done when the
// test says so; numbers that name source, slot and place.

namespace {

using namespace bench;

bool failed(const Result<Fetched>& fetched, ErrorCode code, const std::string& part) {
  REQUIRE_FALSE(fetched);
  CAPTURE(fetched.error().text, part);
  return fetched.error().code == code && fetched.error().text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a fetch brings all bytes of its part, by chunks", "[actors][transport_worker]") {
  Bench bench;
  REQUIRE(bench.prepare() == 4 * target_elements);
  const Result<Fetched> fetched = bench.finish(bench.fetch());
  REQUIRE(fetched);
  REQUIRE(fetched->whole);
  REQUIRE(fetched->version == 1);
  REQUIRE(fetched->bytes == 4 * target_elements);
  REQUIRE(fetched->chunks == 8);
  REQUIRE(bench.holds(0, *bench.sources[0], *bench.sources[1], 0));
}

TEST_CASE("no more chunks fly than the window has room for", "[actors][transport_worker]") {
  Bench bench;
  REQUIRE(bench.prepare());
  const auto answer = bench.fetch();
  for (int done = 0; done < 8; ++done) {
    REQUIRE_FALSE(answer->has_value());
    REQUIRE(bench.chores.size() == (done < 7 ? 2 : 1));
    bench.do_chore();
  }
  REQUIRE(answer->has_value());
}

TEST_CASE("a fetch reads and writes the slots that its order names", "[actors][transport_worker]") {
  Bench bench;
  bench.order.target_slot = 1;
  for (Route& route : bench.order.by_source) route.slot = 1;
  const std::vector<std::int32_t> untouched = bench.target.values[0];
  REQUIRE(bench.fetch_whole()->whole);
  REQUIRE(bench.holds(1, *bench.sources[0], *bench.sources[1], 1));
  REQUIRE(bench.target.values[0] == untouched);
}

TEST_CASE("another trainer replica stands in for a source", "[actors][transport_worker]") {
  Bench bench;
  bench.order.by_source[1] = {3, 0, false};
  REQUIRE(bench.fetch_whole()->whole);
  REQUIRE(bench.holds(0, *bench.sources[0], *bench.sources[3], 0));
}

TEST_CASE("a peer is read at the places that are written", "[actors][transport_worker]") {
  Bench bench;
  bench.order.by_source[1] = {0, 1, true};
  REQUIRE(bench.fetch_whole()->whole);
  const auto middle = static_cast<std::ptrdiff_t>(source_elements);
  const std::vector<std::int32_t>& got = bench.target.values[0];
  const std::vector<std::int32_t>& theirs = bench.peer.values[1];
  REQUIRE(std::equal(got.begin(), got.begin() + middle, bench.sources[0]->values[0].begin()));
  REQUIRE(std::equal(got.begin() + middle, got.end(), theirs.begin() + middle));
}

TEST_CASE("a source that fails is told when nothing flies any more, and what is there is kept",
          "[actors][transport_worker]") {
  Bench bench;
  REQUIRE(bench.prepare());
  int starts = 0;
  bench.transport.manner = [&starts](int start) {
    starts = start;
    return start == 4 ? Manner::fail : Manner::succeed;
  };
  const auto answer = bench.fetch();
  for (int i = 0; i < 3; ++i) bench.do_chore();
  REQUIRE(starts == 5);
  bench.do_chore();  // The fourth start: a chunk of source 1.
  REQUIRE_FALSE(answer->has_value());
  REQUIRE(starts == 5);
  const Result<Fetched> fetched = bench.finish(answer);
  REQUIRE_FALSE(fetched->whole);
  REQUIRE(fetched->failed == ShardId{Side::trainer, 0, 1});
  REQUIRE(fetched->why == "the wire is cut");
  REQUIRE(fetched->bytes == 4 * 64);
  REQUIRE(fetched->chunks == 4);

  bench.order.by_source[1] = {3, 0, false};
  // So that the part that came from the first source can be told from what comes now.
  for (std::int32_t& value : bench.sources[3]->values[0]) value -= 20'000;
  const Result<Fetched> again = bench.finish(bench.fetch());
  REQUIRE(again->whole);
  REQUIRE(again->bytes == 4 * target_elements);
  REQUIRE(again->chunks == 8);
  REQUIRE(starts == 9);
  REQUIRE(bench.holds(0, *bench.sources[0], *bench.sources[1], 0));
}

TEST_CASE("another lease begins anew", "[actors][transport_worker]") {
  Bench bench;
  int starts = 0;
  bench.transport.manner = [&starts](int start) {
    starts = start;
    return start == 6 ? Manner::fail : Manner::succeed;
  };
  REQUIRE_FALSE(bench.fetch_whole()->whole);
  const int before = starts;
  bench.order.lease = 2;
  const Result<Fetched> fetched = bench.finish(bench.fetch());
  REQUIRE(fetched->whole);
  REQUIRE(fetched->bytes == 4 * target_elements);
  REQUIRE(starts == before + 8);
}

TEST_CASE("an order that is repeated after it was done moves nothing",
          "[actors][transport_worker]") {
  Bench bench;
  REQUIRE(bench.fetch_whole()->whole);
  const auto answer = bench.fetch();
  REQUIRE(bench.chores.empty());
  REQUIRE((*answer)->value().whole);
  REQUIRE((*answer)->value().bytes == 4 * target_elements);
}

TEST_CASE("a source that can't be prepared is told by name", "[actors][transport_worker]") {
  Bench bench;
  bench.transport.unreadable = ShardId{Side::trainer, 0, 1};
  const Result<Fetched> fetched = bench.fetch_whole();
  REQUIRE_FALSE(fetched->whole);
  REQUIRE(fetched->failed == bench.transport.unreadable);
  REQUIRE(fetched->why == "it is gone");
  bench.transport.unreadable = {Side::rollout, 1, 0};
  bench.order.by_source[1] = {0, 0, true};
  REQUIRE(bench.finish(bench.fetch())->failed == bench.transport.unreadable);
  bench.transport.unreadable.reset();
  REQUIRE(bench.finish(bench.fetch())->whole);
}

TEST_CASE("chunks are bound with the plan, once for each other route, and anew for other memory",
          "[actors][transport_worker]") {
  Bench bench;
  // Eight chunks, from both slots of their sources.
  REQUIRE(bench.prepare());
  REQUIRE(std::exchange(bench.transport.prepared, 0) == 16);
  const auto fetch_again = [&bench] {
    ++bench.order.lease;
    REQUIRE(bench.finish(bench.fetch())->whole);
    return std::exchange(bench.transport.prepared, 0);
  };
  REQUIRE(fetch_again() == 0);
  const auto to_slot = [&bench](std::uint32_t slot) {
    for (Route& route : bench.order.by_source) route.slot = slot;
    bench.order.target_slot = slot;
  };
  to_slot(1);
  REQUIRE(fetch_again() == 8);
  to_slot(0);
  REQUIRE(fetch_again() == 0);
  REQUIRE(bench.holds(0, *bench.sources[0], *bench.sources[1], 0));
  bench.order.by_source[0].source = 2;
  REQUIRE(fetch_again() == 4);
  bench.order.by_source[0].source = 0;
  REQUIRE(fetch_again() == 4);
  REQUIRE(bench.prepare());
  REQUIRE(fetch_again() == 16);
}

TEST_CASE("a second word on one start counts nothing", "[actors][transport_worker]") {
  Bench bench;
  bench.transport.manner = [](int) { return Manner::say_twice; };
  const Result<Fetched> fetched = bench.fetch_whole();
  REQUIRE(fetched->whole);
  REQUIRE(fetched->bytes == 4 * target_elements);
  REQUIRE(fetched->chunks == 8);
}

TEST_CASE("a chunk of which bytes are missing has failed", "[actors][transport_worker]") {
  Bench bench;
  bench.transport.manner = [](int start) {
    return start == 1 ? Manner::move_little : Manner::succeed;
  };
  const Result<Fetched> fetched = bench.fetch_whole();
  REQUIRE_FALSE(fetched->whole);
  REQUIRE(fetched->failed == ShardId{Side::trainer, 0, 0});
  REQUIRE(fetched->why == "it moved 63 bytes of 64");
  REQUIRE(fetched->bytes == 64);
}

TEST_CASE("a fetch that misses its deadline is cancelled, and can go on later",
          "[actors][transport_worker]") {
  Bench bench;
  bench.transport.manner = [](int start) { return start == 3 ? Manner::stall : Manner::succeed; };
  REQUIRE(bench.prepare());
  const auto answer = bench.fetch();
  while (!bench.chores.empty()) bench.do_chore();
  REQUIRE_FALSE(answer->has_value());
  const Duration begun = bench.now();
  bench.wait();
  REQUIRE(bench.now() - begun == std::chrono::seconds(10));
  REQUIRE(answer->has_value());
  REQUIRE(failed(**answer, ErrorCode::timeout, "10 s"));
  const Result<Fetched> again = bench.finish(bench.fetch());
  REQUIRE(again->whole);
  REQUIRE(again->chunks == 8);
}

TEST_CASE("the deadline of a fetch that is over disturbs no other", "[actors][transport_worker]") {
  Bench bench;
  REQUIRE(bench.fetch_whole()->whole);
  bench.order.lease = 2;
  bench.order.deadline = std::chrono::hours(1'000'000);
  const auto answer = bench.fetch();
  bench.wait();
  REQUIRE_FALSE(answer->has_value());
  REQUIRE(bench.finish(answer)->whole);
}

TEST_CASE("an order without time is late at once", "[actors][transport_worker]") {
  Bench bench;
  bench.order.deadline = std::chrono::seconds(-5);
  REQUIRE(bench.prepare());
  const auto answer = bench.fetch();
  if (!answer->has_value()) bench.wait();
  REQUIRE(failed(**answer, ErrorCode::timeout, "did not all come"));
}

TEST_CASE("a cancelled fetch is answered when nothing is written any more",
          "[actors][transport_worker]") {
  Bench bench;
  REQUIRE(bench.cancel()->has_value());
  REQUIRE(bench.prepare());
  const auto answer = bench.fetch();
  bench.do_chore();
  const auto cancelled = bench.cancel();
  REQUIRE(cancelled->has_value());
  REQUIRE((*cancelled)->has_value());
  REQUIRE(failed(**answer, ErrorCode::unavailable, "cancelled"));
  const std::vector<std::int32_t> before = bench.target.values[0];
  while (!bench.chores.empty()) bench.do_chore();
  REQUIRE(bench.target.values[0] == before);
  REQUIRE(bench.finish(bench.fetch())->whole);
}

TEST_CASE("the end of a worker cancels what flies", "[actors][transport_worker]") {
  Bench bench;
  REQUIRE(bench.prepare());
  const auto answer = bench.fetch();
  REQUIRE(bench.chores.size() == 2);
  const std::vector<std::int32_t> before = bench.target.values[0];
  bench.end();
  while (!bench.chores.empty()) bench.do_chore();
  REQUIRE(bench.target.values[0] == before);
  REQUIRE_FALSE(answer->has_value());
}

TEST_CASE("nothing is fetched before a part is prepared, and one fetch at a time",
          "[actors][transport_worker]") {
  Bench bench;
  REQUIRE(failed(**bench.fetch(), ErrorCode::refused, "nothing is prepared"));
  REQUIRE(bench.prepare());
  const auto answer = bench.fetch();
  REQUIRE(failed(**bench.fetch(), ErrorCode::refused, "another fetch is running"));
  REQUIRE(bench.prepare().error().code == ErrorCode::refused);
  REQUIRE(bench.finish(answer)->whole);
}

TEST_CASE("a part that does not fit the memory is refused", "[actors][transport_worker]") {
  Bench bench;
  CopyList& planned = bench.plan.parts[0].copies;
  std::vector<Copy> copies(planned.begin(), planned.end());
  copies[1].target_offset += 4;
  planned = std::move(copies);
  REQUIRE(bench.prepare().error().code == ErrorCode::invalid);
  REQUIRE(failed(**bench.fetch(), ErrorCode::refused, "nothing is prepared"));
}

TEST_CASE("an order by routes that are not there is refused", "[actors][transport_worker]") {
  Bench bench;
  REQUIRE(bench.prepare());
  const auto refused = [&bench](const std::function<void(FetchOrder&)>& change) {
    const FetchOrder good = bench.order;
    change(bench.order);
    const auto answer = bench.fetch();
    bench.order = good;
    return answer->has_value() && !**answer && (*answer)->error().code == ErrorCode::invalid;
  };
  REQUIRE(refused([](FetchOrder& o) { o.by_source.pop_back(); }));
  REQUIRE(refused([](FetchOrder& o) { o.stands = {1, 2, 3}; }));
  REQUIRE(refused([](FetchOrder& o) { o.target_slot = 2; }));
  REQUIRE(refused([](FetchOrder& o) { o.by_source[0].slot = 2; }));
  REQUIRE(refused([](FetchOrder& o) { o.by_source[0].source = 4; }));
  REQUIRE(refused([](FetchOrder& o) {
    o.by_source[0].peer = true;
    o.peer_regions.clear();
  }));
  REQUIRE(bench.finish(bench.fetch())->whole);
}

/// Both trainer replicas, though the plan reads one.
const std::vector<Route> each_itself = {{0, 0, false}, {1, 0, false}, {2, 0, false}, {3, 0, false}};

TEST_CASE("a version that is being written is read as far as it stands",
          "[actors][transport_worker]") {
  Bench bench;
  // Chunks of 64 bytes; the second source is read in columns, whose last ones need nearly all.
  bench.order.by_source = each_itself;
  bench.order.stands = {130, 0, 0, 0};
  REQUIRE(bench.prepare());
  const auto answer = bench.fetch();
  int done = 0;
  for (; !bench.chores.empty(); ++done) bench.do_chore();
  CHECK(done == 2);
  // Word under another lease, or of other sources than there are, says nothing.
  bench.stand(2, {everything, everything, everything, everything});
  bench.stand(1, {everything, everything});
  CHECK(bench.chores.empty());
  bench.stand(1, {192, 0, 0, 0});
  CHECK(bench.chores.size() == 1);
  bench.stand(1, {everything, everything, 0, 0});
  while (!bench.chores.empty()) bench.do_chore();
  // The plan has two sources more, which are not whole.
  REQUIRE(answer->has_value() == false);
  bench.stand(1, {0, 0, everything, everything});
  REQUIRE(answer->has_value());
  CHECK((*answer)->value().whole);
  CHECK((*answer)->value().chunks == 8);
  CHECK(bench.holds(0, *bench.sources[0], *bench.sources[1], 0));
}

TEST_CASE("a source that writes no more has failed after 5 s, and what is there is kept",
          "[actors][transport_worker]") {
  Bench bench;
  bench.order.by_source = each_itself;
  bench.order.stands = {everything, 0, everything, everything};
  REQUIRE(bench.prepare());
  const auto answer = bench.fetch();
  while (!bench.chores.empty()) bench.do_chore();
  const Duration begun = bench.now();
  bench.wait();
  CHECK(bench.now() - begun == std::chrono::seconds(5));
  REQUIRE(answer->has_value());
  const Fetched& fetched = (*answer)->value();
  CHECK_FALSE(fetched.whole);
  CHECK(fetched.failed == ShardId{Side::trainer, 0, 1});
  CHECK(fetched.why == "it wrote nothing more of the version for 5000 ms");
  CHECK(fetched.chunks == 4);
  bench.order.by_source[1].source = 3;
  const Result<Fetched> again = bench.finish(bench.fetch());
  CHECK(again->whole);
  CHECK(bench.holds(0, *bench.sources[0], *bench.sources[3], 0));
}

TEST_CASE("a fetch that waits for its source ends when it is cancelled, and frees the next",
          "[actors][transport_worker]") {
  Bench bench;
  bench.order.stands = {0, 0, 0, 0};
  REQUIRE(bench.prepare());
  const auto answer = bench.fetch();
  CHECK(bench.chores.empty());
  REQUIRE(bench.cancel()->has_value());
  REQUIRE(failed(**answer, ErrorCode::unavailable, "cancelled"));
  bench.order.stands.clear();
  bench.order.lease = 2;
  const auto next = bench.fetch();
  // The word that the one before has waited too long comes during this one.
  bench.wait();
  REQUIRE_FALSE(next->has_value());
  REQUIRE(bench.finish(next)->whole);
}

TEST_CASE("a part without copies is whole at once", "[actors][transport_worker]") {
  Bench bench;
  bench.plan.parts[0].copies = {};
  REQUIRE(bench.prepare() == 0U);
  REQUIRE((*bench.fetch())->value().whole);
}

}  // namespace weir
