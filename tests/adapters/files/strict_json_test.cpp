// Goal: JSON that two readers could understand differently is refused, with the reason.
// Method: small texts and files, good and bad, each with the exact error it must give.
#include "adapters/files/strict_json.hpp"

#include <catch2/catch_test_macros.hpp>

#include "adapters/files/file_system.hpp"
#include "tests/adapters/files/scratch_folder.hpp"

namespace weir {
namespace {

std::string fault_of(const std::string& text) {
  const auto json = parse_strict_json(text);
  return json ? "" : json.error().text;
}

}  // namespace

TEST_CASE("plain JSON is read as it stands", "[files]") {
  const auto json = parse_strict_json(R"({"a": [1, {"a": 2}], "b": {"a": null}})");
  REQUIRE(json.has_value());
  REQUIRE(json->at("a").at(1).at("a") == 2);
  REQUIRE(json->at("b").at("a").is_null());
}

TEST_CASE("a key that stands twice in one object is refused at any depth", "[files]") {
  REQUIRE(fault_of(R"({"a": 1, "a": 1})") == "has the key \"a\" twice in one object");
  REQUIRE(fault_of(R"({"x": [{"y": {"a": 1, "b": 2, "a": 3}}]})") ==
          "has the key \"a\" twice in one object");
  REQUIRE(fault_of(R"([{"a": 1}, {"a": 1}])").empty());
}

TEST_CASE("nesting has a limit, and what lies at the limit is read", "[files]") {
  REQUIRE(fault_of(std::string(32, '[') + std::string(32, ']')).empty());
  REQUIRE(fault_of(std::string(33, '[') + std::string(33, ']')) == "nests deeper than 32 levels");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  REQUIRE(fault_of(objects + "1" + std::string(100'000, '}')) == "nests deeper than 32 levels");
}

TEST_CASE("what is not JSON in UTF-8 is refused", "[files]") {
  for (const std::string text : {"", "{", "{} x", "{\"a\": 01}", "{\"\xff\": 1}", "[1,]", "nul"}) {
    CAPTURE(text);
    REQUIRE(fault_of(text) == "is not JSON in UTF-8");
  }
  REQUIRE(fault_of(std::string("{}\0x", 4)) == "is not JSON: it holds a zero byte");
}

TEST_CASE("errors in a file begin with its path", "[files]") {
  const ScratchFolder folder;
  write_bytes(folder / "a.json", "[");
  REQUIRE(read_strict_json(folder / "a.json").error().text ==
          (folder / "a.json").string() + " is not JSON in UTF-8");
  const auto missing = read_strict_json(folder / "b.json");
  REQUIRE(missing.error().code == ErrorCode::not_found);
  REQUIRE(missing.error().text ==
          "cannot open " + (folder / "b.json").string() + ": No such file or directory");
  REQUIRE(read_strict_json(folder.path()).error().text ==
          folder.path().string() + " is not a regular file");
}

TEST_CASE("a file larger than its limit is refused", "[files]") {
  const ScratchFolder folder;
  write_bytes(folder / "a", "12345");
  REQUIRE(read_text_file(folder / "a", 5) == "12345");
  const auto refused = read_text_file(folder / "a", 4);
  REQUIRE(refused.error().code == ErrorCode::refused);
  REQUIRE(refused.error().text ==
          (folder / "a").string() + " is larger than the 4 bytes that such a file may have");
}

TEST_CASE("a text file is written once and never over another", "[files]") {
  const ScratchFolder folder;
  REQUIRE(write_text_file(folder / "a", "text").has_value());
  REQUIRE(read_bytes(folder / "a") == "text");
  const auto again = write_text_file(folder / "a", "other");
  REQUIRE(again.error().text == "cannot create " + (folder / "a").string() + ": File exists");
  REQUIRE(read_bytes(folder / "a") == "text");
  REQUIRE(write_text_file(folder.path() / "no" / "a", "x").error().code == ErrorCode::not_found);
  REQUIRE(write_text_file("/dev/full", "x").error().code == ErrorCode::io);
  REQUIRE(sync_folder(folder / "no").error().code == ErrorCode::not_found);
}

TEST_CASE("a hostile name cannot break the line or flood the terminal", "[files]") {
  REQUIRE(quoted_name("plain.weight") == "\"plain.weight\"");
  REQUIRE(quoted_name("a\nb\x1b[31m\"") == R"("a\nb\u001b[31m\"")");
  REQUIRE(quoted_name("\xff") == "\"\xef\xbf\xbd\"");
  REQUIRE(quoted_name(std::string(300, 'x')) == "\"" + std::string(200, 'x') + "\"…");
}

}  // namespace weir
