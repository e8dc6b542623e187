// Goal: a report spans what it says it spans, in whatever order the words come.
// Method: the collector is driven directly with times worked by hand.

#include "actors/publication.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace std::chrono_literals;

namespace weir {
namespace {

TEST_CASE("a report spans the request, the last trainer, the last commit and the slowest check") {
  Publication publication(9, 100, 2, 2, 10s);
  publication.staged(14s);
  publication.staged(12s);
  CHECK_FALSE(publication.complete());
  publication.committed(1, 30, 20s);
  CHECK(publication.has_committed(1));
  CHECK_FALSE(publication.has_committed(0));
  CHECK_FALSE(publication.complete());
  publication.committed(0, 70, 17s);
  CHECK(publication.complete());
  CHECK_FALSE(publication.verified(2s));
  CHECK(publication.verified(1s));
  const VersionReport report = publication.report();
  CHECK(report.version == 9);
  CHECK(report.bytes_needed == 100);
  CHECK(report.bytes_moved == 100);
  CHECK(report.update == 4s);
  CHECK(report.publish == 6s);
  CHECK(report.verify == 2s);
}

TEST_CASE("a replica that says twice that it has committed counts once") {
  Publication publication(1, 10, 1, 2, 0s);
  publication.committed(0, 10, 3s);
  publication.committed(0, 10, 5s);
  publication.staged(1s);
  CHECK_FALSE(publication.complete());
  CHECK(publication.report().bytes_moved == 10);
  CHECK(publication.report().publish == 2s);
}

TEST_CASE("a trainer's word that comes after the commits makes no time negative") {
  Publication publication(1, 10, 1, 1, 0s);
  publication.committed(0, 10, 3s);
  CHECK_FALSE(publication.complete());
  publication.staged(4s);
  CHECK(publication.complete());
  CHECK(publication.report().update == 4s);
  CHECK(publication.report().publish == 0s);
}

}  // namespace
}  // namespace weir
