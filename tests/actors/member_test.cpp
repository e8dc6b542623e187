// Goal: a member that can't be is refused before it looks for its exchange, and shows its memory to
// peers no longer than it runs.
// Method: `run_member` with options that contradict themselves; where it gets as far as looking, no
// exchange is there.

#include "actors/member.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/actors/fake_transport.hpp"
#include "tests/actors/small_model.hpp"

using Catch::Matchers::StartsWith;
using namespace std::chrono_literals;

namespace weir {
namespace {

constexpr ShardId trainer{Side::trainer, 0, 0};
const SmallModel model;

/// A trainer that nothing is wrong with, but that nobody listens at its port.
struct LoneTrainer {
  LoneTrainer() {
    options.port = 1;
    options.manifest = model.manifest_of(trainer, 1);
    options.regions = {region.get()};
    options.transport = &transport;
    options.hooks.update = [](std::uint64_t, const HookDone& done) { done({}); };
    options.connect_deadline = 1ms;
  }
  [[nodiscard]] Error error() const {
    const auto ended = run_member(options);
    REQUIRE_FALSE(ended);
    return ended.error();
  }

  std::vector<std::byte> memory = std::vector<std::byte>(model.bytes_of(trainer, 1));
  std::unique_ptr<Region> region = Region::borrow(memory);
  FakeTransport transport{[](int) { return Manner::succeed; }, nullptr};
  MemberOptions options;
};

TEST_CASE("options that make no member are refused with what to change") {
  LoneTrainer lone;
  SECTION("transport") {
    lone.options.transport = nullptr;
    CHECK(lone.error() ==
          Error{ErrorCode::invalid, "trainer 0.0 has no transport: set MemberOptions::transport"});
  }
  SECTION("regions") {
    lone.options.regions = {};
    CHECK(lone.error() ==
          Error{ErrorCode::invalid, "trainer 0.0 has 0 regions, but its manifest lists 1"});
  }
  SECTION("region size") {
    lone.options.manifest.regions[0].bytes += 1;
    CHECK(lone.error() ==
          Error{ErrorCode::invalid,
                "region 0 of trainer 0.0 has 192 bytes, but its manifest lists 193"});
  }
  SECTION("update hook") {
    lone.options.hooks.update = nullptr;
    CHECK(lone.error() == Error{ErrorCode::invalid, "trainer 0.0 needs an update hook"});
  }
  SECTION("deadline") {
    lone.options.connect_deadline = 0ms;
    CHECK(lone.error() ==
          Error{ErrorCode::invalid, "connect_deadline must be longer than nothing"});
  }
  SECTION("silence") {
    lone.options.silence_max = 0ms;
    CHECK(lone.error() == Error{ErrorCode::invalid, "silence_max must be at least 1 s"});
  }
  SECTION("manifest") {
    lone.options.manifest.pieces[0].offset = 1;
    CHECK(lone.error() == check(lone.options.manifest).error());
  }
  CHECK(lone.transport.exposed == 0);
}

TEST_CASE("a trainer's regions are shown to peers only while it runs") {
  LoneTrainer lone;
  CHECK_THAT(lone.error().text, StartsWith("trainer 0.0 finds no exchange at 127.0.0.1:1 within "));
  CHECK(lone.transport.exposed_ever == 1);
  CHECK(lone.transport.exposed == 0);
}

TEST_CASE("a trainer whose regions can't be shown to peers says why") {
  LoneTrainer lone;
  lone.transport.refuse_to_expose = true;
  CHECK(lone.error() == Error{ErrorCode::refused, "trainer 0.0 can't show region 0: no"});
}

}  // namespace
}  // namespace weir
