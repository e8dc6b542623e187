// Goal: a folder of files is one checkpoint, in which each name stands once.
// Method: small folders composed by hand, good and with one fault each.
#include <catch2/catch_test_macros.hpp>

#include "adapters/safetensors/safetensors.hpp"
#include "tests/adapters/files/scratch_folder.hpp"
#include "tests/adapters/safetensors/file_text.hpp"

namespace weir {
namespace {

/// A file with one U8 tensor of one byte.
std::string file_with(const std::string& name, char value) {
  return file_text("{\"" + name + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                   std::string(1, value));
}

constexpr const char* index_name = "model.safetensors.index.json";

std::string fault_of(const std::filesystem::path& path) {
  const auto checkpoint = Checkpoint::open(path);
  return checkpoint ? "" : checkpoint.error().text;
}

std::string value_of(const Checkpoint& checkpoint, std::string_view name) {
  const auto bytes = checkpoint.data(*checkpoint.find(name));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("an index joins its files and no others", "[safetensors]") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "sub");
  write_bytes(folder / "2.safetensors", file_with("a", 'x'));
  write_bytes(folder / "sub/1.safetensors", file_with("b", 'y'));
  write_bytes(folder / "model.safetensors", file_with("stray", 'z'));
  write_bytes(folder / index_name,
              R"({"metadata":{"total_size":2},)"
              R"("weight_map":{"b":"sub/1.safetensors","a":"2.safetensors"}})");
  const auto checkpoint = Checkpoint::open(folder.path());
  REQUIRE(checkpoint.has_value());
  REQUIRE((*checkpoint)->files().size() == 2);
  REQUIRE((*checkpoint)->entries().size() == 2);
  REQUIRE((*checkpoint)->entries()[0].tensor.name == "a");
  REQUIRE(value_of(**checkpoint, "a") == "x");
  REQUIRE(value_of(**checkpoint, "b") == "y");
  REQUIRE((*checkpoint)->find("stray") == nullptr);
  REQUIRE((*checkpoint)->find("") == nullptr);
  REQUIRE((*checkpoint)->find("c") == nullptr);
}

TEST_CASE("model.safetensors stands before other files, which stand together", "[safetensors]") {
  const ScratchFolder folder;
  write_bytes(folder / "1.safetensors", file_with("a", 'x'));
  write_bytes(folder / "2.safetensors", file_with("b", 'y'));
  write_bytes(folder / "readme.txt", "no weights");
  REQUIRE((*Checkpoint::open(folder.path()))->entries().size() == 2);
  REQUIRE((*Checkpoint::open(folder / "2.safetensors"))->entries().size() == 1);
  write_bytes(folder / "model.safetensors", file_with("m", 'z'));
  const auto checkpoint = Checkpoint::open(folder.path());
  REQUIRE((*checkpoint)->entries().size() == 1);
  REQUIRE(value_of(**checkpoint, "m") == "z");
}

TEST_CASE("a name in two files is refused", "[safetensors]") {
  const ScratchFolder folder;
  write_bytes(folder / "rank-00000-of-00002.safetensors", file_with("a", 'x'));
  write_bytes(folder / "rank-00001-of-00002.safetensors", file_with("a", 'y'));
  REQUIRE(fault_of(folder.path()) ==
          "tensor \"a\" is both in " + (folder / "rank-00000-of-00002.safetensors").string() +
              " and in " + (folder / "rank-00001-of-00002.safetensors").string() +
              ": open one of the files");
}

TEST_CASE("a folder without files, and no folder at all, are not found", "[safetensors]") {
  const ScratchFolder folder;
  const auto empty = Checkpoint::open(folder.path());
  REQUIRE(empty.error().code == ErrorCode::not_found);
  REQUIRE(empty.error().text == folder.path().string() + " holds no *.safetensors file");
  REQUIRE(Checkpoint::open(folder / "no").error().code == ErrorCode::not_found);
}

TEST_CASE("an index must be an index", "[safetensors]") {
  const ScratchFolder folder;
  const std::string index = (folder / index_name).string();
  for (const char* text : {"[]", "{}", R"({"weight_map":[]})"}) {
    write_bytes(index, text);
    REQUIRE(fault_of(folder.path()) == index + " has no object \"weight_map\"");
  }
  write_bytes(index, R"({"weight_map":{"a":1}})");
  REQUIRE(fault_of(folder.path()) == index + " names no file for tensor \"a\"");
  write_bytes(index, R"({"weight_map":{"a":"f","a":"g"}})");
  REQUIRE(fault_of(folder.path()) == index + " has the key \"a\" twice in one object");
}

TEST_CASE("an index reaches no file outside its folder", "[safetensors]") {
  const ScratchFolder folder;
  const std::string index = (folder / index_name).string();
  for (const std::string name : {"", "/etc/passwd", "../f", "sub/../../f", ".."}) {
    write_bytes(index, R"({"weight_map":{"a":")" + name + "\"}}");
    REQUIRE(fault_of(folder.path()) ==
            index + " names the file \"" + name + "\", which is not inside its folder");
  }
}

TEST_CASE("an index and its files must agree in both directions", "[safetensors]") {
  const ScratchFolder folder;
  const std::string index = (folder / index_name).string();
  write_bytes(folder / "f", file_with("a", 'x'));
  write_bytes(folder / "g", file_with("b", 'x'));
  write_bytes(index, R"({"weight_map":{"a":"f","c":"f"}})");
  REQUIRE(fault_of(folder.path()) ==
          (folder / "f").string() + " lacks tensor \"c\", which " + index_name + " says it holds");
  write_bytes(index, R"({"weight_map":{"b":"f"}})");
  REQUIRE(fault_of(folder.path()) ==
          (folder / "f").string() + " holds tensor \"a\", which " + index_name + " does not say");
  write_bytes(index, R"({"weight_map":{"a":"g","b":"f"}})");
  REQUIRE(fault_of(folder.path()) ==
          (folder / "f").string() + " holds tensor \"a\", which " + index_name + " does not say");
  write_bytes(index, R"({"weight_map":{"a":"missing"}})");
  REQUIRE(Checkpoint::open(folder.path()).error().code == ErrorCode::not_found);
}

}  // namespace weir
