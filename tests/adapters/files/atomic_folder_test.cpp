// Goal: a folder is whole or not there. Method: make, drop, collide and leave behind.
#include "adapters/files/atomic_folder.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/adapters/files/scratch_folder.hpp"

namespace weir {

TEST_CASE("a committed folder is in its place with its files and nothing else", "[files]") {
  const ScratchFolder scratch;
  {
    const auto folder = AtomicFolder::create(scratch / "out");
    REQUIRE(folder.has_value());
    REQUIRE_FALSE(std::filesystem::exists(scratch / "out"));
    write_bytes((*folder)->path() / "a", "1");
    REQUIRE((*folder)->commit().has_value());
  }
  REQUIRE(read_bytes(scratch / "out/a") == "1");
  REQUIRE(scratch.entries() == 1);
}

TEST_CASE("a folder that is dropped leaves nothing", "[files]") {
  const ScratchFolder scratch;
  {
    const auto folder = AtomicFolder::create(scratch / "out/");
    REQUIRE(folder.has_value());
    write_bytes((*folder)->path() / "a", "1");
  }
  REQUIRE(scratch.entries() == 0);
}

TEST_CASE("what a killed process left behind is cleared by the next", "[files]") {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / ".out.partial/deep");
  write_bytes(scratch / ".out.partial/deep/old", "old");
  const auto folder = AtomicFolder::create(scratch / "out");
  REQUIRE(folder.has_value());
  REQUIRE((*folder)->commit().has_value());
  REQUIRE(std::filesystem::is_empty(scratch / "out"));
}

TEST_CASE("two makers of one folder do not meet", "[files]") {
  const ScratchFolder scratch;
  const auto first = AtomicFolder::create(scratch / "out");
  write_bytes((*first)->path() / "a", "1");
  const auto second = AtomicFolder::create(scratch / "out");
  REQUIRE(second.error().code == ErrorCode::refused);
  REQUIRE(second.error().text == "another process is making " + (scratch / "out").string() +
                                     " now: wait for it, or name another folder");
  REQUIRE((*first)->commit().has_value());
  REQUIRE(read_bytes(scratch / "out/a") == "1");
}

TEST_CASE("a folder is replaced in one step when that was asked for, and a file never", "[files]") {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "out/old");
  {
    const auto dropped = AtomicFolder::create(scratch / "out", ExistingFolder::replace);
    REQUIRE(dropped.has_value());
  }
  REQUIRE(std::filesystem::exists(scratch / "out/old"));
  const auto folder = AtomicFolder::create(scratch / "out", ExistingFolder::replace);
  REQUIRE(folder.has_value());
  write_bytes((*folder)->path() / "new", "1");
  REQUIRE((*folder)->commit().has_value());
  REQUIRE(read_bytes(scratch / "out/new") == "1");
  REQUIRE_FALSE(std::filesystem::exists(scratch / "out/old"));
  REQUIRE(scratch.entries() == 1);

  std::filesystem::create_directory(scratch / "empty");
  const auto other = AtomicFolder::create(scratch / "empty", ExistingFolder::replace);
  REQUIRE((*other)->commit().has_value());
  REQUIRE(scratch.entries() == 2);

  write_bytes(scratch / "file", "precious");
  const auto refused = AtomicFolder::create(scratch / "file", ExistingFolder::replace);
  REQUIRE(refused.error().code == ErrorCode::refused);
  REQUIRE(read_bytes(scratch / "file") == "precious");
}

TEST_CASE("what exists already is not replaced", "[files]") {
  const ScratchFolder scratch;
  const std::string refusal =
      (scratch / "out").string() + " exists already: remove it or name another folder";
  const auto folder = AtomicFolder::create(scratch / "out");
  write_bytes(scratch / "out", "file");
  REQUIRE((*folder)->commit().error().text == refusal);
  REQUIRE(AtomicFolder::create(scratch / "out").error().text == refusal);
  REQUIRE(read_bytes(scratch / "out") == "file");
  REQUIRE(AtomicFolder::create(scratch / "no/out").error().code == ErrorCode::not_found);
}

}  // namespace weir
