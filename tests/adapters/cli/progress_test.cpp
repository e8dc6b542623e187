#include "adapters/cli/progress.hpp"

#include <catch2/catch_test_macros.hpp>
#include <sstream>

namespace weir::cli {

// Goal: a person reads the truth about a long run, and a log is not littered. Method: a clock that
// the test moves by hand, and the text worked out from bytes and time.

namespace {

class ManualClock final : public Clock {
 public:
  [[nodiscard]] std::chrono::nanoseconds now() const noexcept override { return time; }
  std::chrono::nanoseconds time{0};
};

struct Scene {
  ManualClock clock;
  std::ostringstream out;
  std::ostringstream err;
  Console console{.out = out, .err = err, .clock = clock};
};

constexpr std::string_view wipe = "\r\x1b[K";

}  // namespace

TEST_CASE("bytes are written in decimal units with three digits", "[cli]") {
  REQUIRE(bytes_text(0) == "0 B");
  REQUIRE(bytes_text(999) == "999 B");
  REQUIRE(bytes_text(1000) == "1.00 kB");
  REQUIRE(bytes_text(1.19e9) == "1.19 GB");
  REQUIRE(bytes_text(12.34e9) == "12.3 GB");
  REQUIRE(bytes_text(123.4e9) == "123 GB");
  REQUIRE(bytes_text(999.6e9) == "1.00 TB");
  REQUIRE(bytes_text(9.996e6) == "10.0 MB");
}

TEST_CASE("durations are written as people say them", "[cli]") {
  using namespace std::chrono_literals;
  REQUIRE(duration_text(840ms) == "0.84 s");
  REQUIRE(duration_text(12300ms) == "12.3 s");
  REQUIRE(duration_text(185s) == "3 min 05 s");
  REQUIRE(duration_text(119600ms) == "2 min 00 s");
}

TEST_CASE("a bar fills from none to all and never beyond", "[cli]") {
  REQUIRE(bar_text(0, 4) == "....");
  REQUIRE(bar_text(0.5, 4) == "##..");
  REQUIRE(bar_text(1, 4) == "####");
  REQUIRE(bar_text(7, 4) == "####");
  REQUIRE(bar_text(-1, 4) == "....");
}

TEST_CASE("where nobody watches, only the end of a run is written", "[cli]") {
  Scene scene;
  ProgressBar bar(scene.console, {.label = "copy", .total_bytes = 3'000'000'000});
  scene.clock.time = std::chrono::seconds(1);
  bar.add(3'000'000'000);
  REQUIRE(scene.err.str().empty());
  scene.clock.time = std::chrono::seconds(2);
  bar.finish();
  REQUIRE(scene.err.str() == "copy: 3.00 GB in 2.00 s, 1.50 GB/s\n");
}

TEST_CASE("a watched bar shows part, speed and time left", "[cli]") {
  Scene scene;
  scene.console.columns = 120;
  ProgressBar bar(scene.console, {.label = "copy", .total_bytes = 4'000'000'000, .redraw = true});
  scene.clock.time = std::chrono::seconds(2);
  bar.add(1'000'000'000);
  // 1 GB in 2 s is 500 MB/s, so the other 3 GB take 6 s; a quarter of 24 places is 6.
  REQUIRE(scene.err.str() == std::string(wipe) +
                                 "copy [######..................] 25%  1.00 GB of 4.00 GB  "
                                 "500 MB/s  ETA 6.00 s");
}

TEST_CASE("a watched bar is not redrawn more than ten times a second", "[cli]") {
  Scene scene;
  ProgressBar bar(scene.console, {.label = "copy", .total_bytes = 100, .redraw = true});
  bar.add(1);
  const std::size_t first = scene.err.str().size();
  scene.clock.time += std::chrono::milliseconds(99);
  bar.add(1);
  REQUIRE(scene.err.str().size() == first);
  scene.clock.time += std::chrono::milliseconds(1);
  bar.add(1);
  REQUIRE(scene.err.str().size() > first);
}

TEST_CASE("a watched bar never wraps its line", "[cli]") {
  Scene scene;
  scene.console.columns = 20;
  ProgressBar bar(scene.console, {.label = "copy", .total_bytes = 100, .redraw = true});
  bar.add(50);
  // One column stays free: terminals wrap when the last one is taken.
  REQUIRE(scene.err.str() == std::string(wipe) + "copy [############.");
}

TEST_CASE("a bar that ends early leaves a clean line", "[cli]") {
  Scene scene;
  {
    ProgressBar bar(scene.console, {.label = "copy", .total_bytes = 100, .redraw = true});
    bar.add(50);
  }
  const std::string text = scene.err.str();
  REQUIRE(text.substr(text.size() - wipe.size()) == wipe);
}

}  // namespace weir::cli
