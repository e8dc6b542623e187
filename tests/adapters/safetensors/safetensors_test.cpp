// Goal: files are read as they are, and written whole or not at all.
// Method: files composed by hand are read; written files are compared with bytes composed by hand.
#include "adapters/safetensors/safetensors.hpp"

#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <cstring>

#include "tests/adapters/files/scratch_folder.hpp"
#include "tests/adapters/safetensors/file_text.hpp"

namespace weir {
namespace {

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void fill(SafetensorsWriter& writer, std::size_t index, const std::string& bytes) {
  REQUIRE(writer.data(index).size() == bytes.size());
  std::memcpy(writer.data(index).data(), bytes.data(), bytes.size());
}

const std::string two_tensors = R"({"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                R"("a":{"dtype":"F16","shape":[],"data_offsets":[2,4]}})";

}  // namespace

TEST_CASE("a file is read in place, also through a symbolic link", "[safetensors]") {
  const ScratchFolder folder;
  write_bytes(folder / "real", file_text(two_tensors, "xyzw"));
  std::filesystem::create_symlink("real", folder / "link");
  for (const char* name : {"real", "link"}) {
    const auto file = SafetensorsFile::open(folder / name);
    REQUIRE(file.has_value());
    REQUIRE((*file)->path() == folder / name);
    REQUIRE((*file)->tensors()[0] == FileTensor{"a", ElementType::f16, {}});
    REQUIRE(text_of((*file)->data(0)) == "zw");
    (*file)->release(1);
    REQUIRE(text_of((*file)->data(1)) == "xy");
  }
}

TEST_CASE("what cannot be opened is told with its path", "[safetensors]") {
  const ScratchFolder folder;
  const auto text = [&](const char* name) {
    return SafetensorsFile::open(folder / name).error().text;
  };
  REQUIRE(SafetensorsFile::open(folder / "no").error().code == ErrorCode::not_found);
  write_bytes(folder / "empty", "");
  REQUIRE(text("empty") ==
          (folder / "empty").string() + ": is too short for a safetensors file (0 bytes)");
  write_bytes(folder / "cut", file_text(two_tensors, "xyz"));
  REQUIRE(text("cut") == (folder / "cut").string() +
                             ": tensor \"a\" ends at byte 4 of the data, which has only 3: "
                             "the file is cut short or damaged");
  REQUIRE(SafetensorsFile::open(folder.path()).error().text ==
          folder.path().string() + " is not a regular file");
}

TEST_CASE("a written file is what the format says, aligned and in order", "[safetensors]") {
  const ScratchFolder folder;
  auto writer = SafetensorsWriter::create(folder / "f",
                                          {{"small", ElementType::u8, {3}},
                                           {"none", ElementType::f32, {0, 5}},
                                           {"wide", ElementType::i64, {1}},
                                           {"scalar", ElementType::bf16, {}}},
                                          {{"format", "pt"}, {"é", "\"\n"}});
  REQUIRE(writer.has_value());
  fill(**writer, 0, "abc");
  fill(**writer, 1, "");
  fill(**writer, 2, "12345678");
  fill(**writer, 3, "xy");
  for (std::size_t index = 0; index < 4; ++index) (*writer)->flush(index);
  REQUIRE(text_of((*writer)->data(2)) == "12345678");
  REQUIRE_FALSE(std::filesystem::exists(folder / "f"));
  REQUIRE((*writer)->commit().has_value());
  REQUIRE(folder.entries() == 1);

  std::string header = R"({"__metadata__":{"format":"pt","é":"\"\n"},)"
                       R"("wide":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                       R"("none":{"dtype":"F32","shape":[0,5],"data_offsets":[8,8]},)"
                       R"("scalar":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},)"
                       R"("small":{"dtype":"U8","shape":[3],"data_offsets":[10,13]}})";
  while ((8 + header.size()) % 64 != 0) header += ' ';
  REQUIRE(read_bytes(folder / "f") == file_text(header, "12345678xyabc"));
}

TEST_CASE("data that is not written is zero", "[safetensors]") {
  const ScratchFolder folder;
  auto writer = SafetensorsWriter::create(folder / "f", {{"t", ElementType::f32, {3000}}}, {});
  REQUIRE((*writer)->commit().has_value());
  const auto file = SafetensorsFile::open(folder / "f");
  REQUIRE(text_of((*file)->data(0)) == std::string(12000, '\0'));
}

TEST_CASE("a writer that does not commit leaves nothing, and the old file stays", "[safetensors]") {
  const ScratchFolder folder;
  write_bytes(folder / "f", "old");
  {
    auto writer = SafetensorsWriter::create(folder / "f", {{"t", ElementType::u8, {4}}}, {});
    REQUIRE(writer.has_value());
    REQUIRE(folder.entries() == 2);
  }
  REQUIRE(folder.entries() == 1);
  REQUIRE(read_bytes(folder / "f") == "old");
}

TEST_CASE("a commit replaces the old file whole, while its readers keep it", "[safetensors]") {
  const ScratchFolder folder;
  write_bytes(folder / "f", file_text(two_tensors, "xyzw"));
  const auto old = SafetensorsFile::open(folder / "f");
  auto first = SafetensorsWriter::create(folder / "f", {{"t", ElementType::u8, {1}}}, {});
  auto second = SafetensorsWriter::create(folder / "f", {{"u", ElementType::u8, {1}}}, {});
  REQUIRE((*first)->commit().has_value());
  REQUIRE((*second)->commit().has_value());
  REQUIRE((*SafetensorsFile::open(folder / "f"))->tensors()[0].name == "u");
  REQUIRE(text_of((*old)->data(0)) == "zw");
}

TEST_CASE("a symbolic link is never replaced by writing", "[safetensors]") {
  const ScratchFolder folder;
  write_bytes(folder / "real", "old");
  auto writer = SafetensorsWriter::create(folder / "f", {{"t", ElementType::u8, {1}}}, {});
  std::filesystem::create_symlink("real", folder / "f");
  const std::string refusal = (folder / "f").string() +
                              " is a symbolic link, which is not replaced: "
                              "remove it or write to where it points";
  REQUIRE((*writer)->commit().error().text == refusal);
  writer->reset();
  const auto refused = SafetensorsWriter::create(folder / "f", {}, {});
  REQUIRE(refused.error().code == ErrorCode::refused);
  REQUIRE(refused.error().text == refusal);
  REQUIRE(std::filesystem::is_symlink(folder / "f"));
  REQUIRE(read_bytes(folder / "real") == "old");
  REQUIRE(folder.entries() == 2);
}

TEST_CASE("what cannot be written is refused before anything is made", "[safetensors]") {
  const ScratchFolder folder;
  const auto refusal = [&](const std::vector<FileTensor>& tensors, const FileMetadata& metadata) {
    const auto writer = SafetensorsWriter::create(folder / "f", tensors, metadata);
    REQUIRE_FALSE(writer.has_value());
    CHECK(writer.error().code == ErrorCode::invalid);
    const std::string prefix = (folder / "f").string() + " ";
    REQUIRE(writer.error().text.starts_with(prefix));
    return writer.error().text.substr(prefix.size());
  };
  const FileTensor good{"t", ElementType::u8, {1}};
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  REQUIRE(refusal({good, good}, {}) == "cannot hold the tensor \"t\" twice");
  REQUIRE(refusal({{"", ElementType::u8, {}}}, {}) == "cannot hold a tensor without a name");
  REQUIRE(refusal({{"__metadata__", ElementType::u8, {}}}, {}) ==
          "cannot hold a tensor named \"__metadata__\"");
  REQUIRE(refusal({{"\xff", ElementType::u8, {}}}, {}) ==
          "cannot hold a name or metadata that is not UTF-8");
  REQUIRE(refusal({}, {{"a", "\xff"}}) == "cannot hold a name or metadata that is not UTF-8");
  REQUIRE(refusal({{"t", ElementType::u8, {-1}}}, {}) == "tensor \"t\" has a negative extent");
  REQUIRE(refusal({{"t", ElementType::f32, {huge}}}, {}) ==
          "tensor \"t\" has a shape of more than 2^63 bytes");
  REQUIRE(refusal({{"t", ElementType::u8, {huge}}, {"u", ElementType::u8, {huge}}}, {}) ==
          "cannot hold more than 2^63 bytes");
  const std::string too_long =
      "cannot hold so many tensors: their header would exceed 100000000 bytes";
  std::string name;
  name.resize(100'000'000, 'x');
  REQUIRE(refusal({{name, ElementType::u8, {}}}, {}) == too_long);
  REQUIRE(folder.entries() == 0);
}

TEST_CASE("a full disk is told before it is written to", "[safetensors]") {
  const ScratchFolder folder;
  const auto writer = SafetensorsWriter::create(
      folder / "f", {{"t", ElementType::u8, {std::int64_t{1} << 60}}}, {});
  REQUIRE(writer.error().code == ErrorCode::refused);
  REQUIRE(writer.error().text.starts_with("not enough space in " + folder.path().string() +
                                          ": 1152921504606847104 bytes needed, "));
  REQUIRE(writer.error().text.ends_with(" free: make room or choose another folder"));
  REQUIRE(folder.entries() == 0);
}

TEST_CASE("space that cannot be reserved is told before it is written to", "[safetensors]") {
  const ScratchFolder folder;
  // A limit on file sizes stands in for a file system that refuses; its signal must not kill.
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const rlimit limit{4096, old_limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto writer = SafetensorsWriter::create(folder / "f", {{"t", ElementType::u8, {8192}}}, {});
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  std::signal(SIGXFSZ, old_handler);
  REQUIRE(writer.error().code == ErrorCode::io);
  REQUIRE(writer.error().text ==
          "cannot reserve space for " + (folder / "f").string() + ": File too large");
  REQUIRE(folder.entries() == 0);
}

TEST_CASE("a place that cannot hold a file is refused", "[safetensors]") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "d");
  REQUIRE(SafetensorsWriter::create(folder / "d", {}, {}).error().text ==
          (folder / "d").string() + " exists and is no file: remove it or name another");
  REQUIRE(SafetensorsWriter::create(folder / "no/f", {}, {}).error().code == ErrorCode::not_found);
  REQUIRE(SafetensorsWriter::create(folder / std::string(250, 'x'), {}, {}).error().code ==
          ErrorCode::io);
}

TEST_CASE("temporary names run out with a clear word", "[safetensors]") {
  const ScratchFolder folder;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers;
  for (int i = 0; i < 100; ++i) {
    auto writer = SafetensorsWriter::create(folder / "f", {}, {});
    REQUIRE(writer.has_value());
    writers.push_back(std::move(*writer));
  }
  const auto refused = SafetensorsWriter::create(folder / "f", {}, {});
  REQUIRE(refused.error().code == ErrorCode::refused);
  REQUIRE(refused.error().text.starts_with("too many temporary files .f.tmp-"));
  REQUIRE(refused.error().text.ends_with(" in " + folder.path().string() + ": remove them"));
}

}  // namespace weir
