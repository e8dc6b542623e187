// Goal: every rule of the format is checked, and its breach told in words.
// Method: headers written by hand; each bad one differs from a good one in one point.
#include "adapters/safetensors/internal/header.hpp"

#include <catch2/catch_test_macros.hpp>

#include "tests/adapters/safetensors/file_text.hpp"

namespace weir {
namespace {

Result<SafetensorsHeader> parse(const std::string& bytes) {
  return parse_safetensors_header(std::as_bytes(std::span(bytes)));
}

std::string fault_of(const std::string& header, const std::string& data) {
  const auto parsed = parse(file_text(header, data));
  if (parsed) return "";
  CHECK(parsed.error().code == ErrorCode::invalid);
  return parsed.error().text;
}

/// A header with one tensor "t" of the given members.
std::string one(const std::string& members) {
  return "{\"t\":{" + members + "}}";
}

}  // namespace

TEST_CASE("tensors come sorted by name, with their place in the file", "[safetensors]") {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                             R"("a":{"dtype":"BOOL","shape":[],"data_offsets":[8,9]},)"
                             R"("é":{"dtype":"I64","shape":[3,0],"data_offsets":[9,9]}}   )";
  const auto parsed = parse(file_text(header, std::string(9, 'x')));
  REQUIRE(parsed.has_value());
  REQUIRE(parsed->metadata == FileMetadata{{"format", "pt"}});
  REQUIRE(parsed->tensors.size() == 3);
  const std::uint64_t data = 8 + header.size();
  REQUIRE(parsed->tensors[0].tensor == FileTensor{"a", ElementType::boolean, {}});
  REQUIRE(parsed->tensors[0].begin == data + 8);
  REQUIRE(parsed->tensors[0].end == data + 9);
  REQUIRE(parsed->tensors[1].tensor == FileTensor{"b", ElementType::f32, {1, 2}});
  REQUIRE(parsed->tensors[1].begin == data);
  REQUIRE(parsed->tensors[2].tensor == FileTensor{"é", ElementType::i64, {3, 0}});
}

TEST_CASE("each type has the format's own name and the size of its elements", "[safetensors]") {
  const std::vector<std::tuple<std::string, ElementType, int>> types = {
      {"F32", ElementType::f32, 4},         {"F16", ElementType::f16, 2},
      {"BF16", ElementType::bf16, 2},       {"F8_E4M3", ElementType::f8_e4m3, 1},
      {"F8_E5M2", ElementType::f8_e5m2, 1}, {"I8", ElementType::i8, 1},
      {"U8", ElementType::u8, 1},           {"I32", ElementType::i32, 4},
      {"I64", ElementType::i64, 8},         {"BOOL", ElementType::boolean, 1}};
  for (const auto& [name, type, bytes] : types) {
    const std::string size = std::to_string(3 * bytes);
    const auto parsed = parse(
        file_text(one("\"dtype\":\"" + name + "\",\"shape\":[3],\"data_offsets\":[0," + size + "]"),
                  std::string(static_cast<std::size_t>(3 * bytes), 'x')));
    REQUIRE(parsed.has_value());
    REQUIRE(parsed->tensors[0].tensor.type == type);
    REQUIRE(safetensors_name_of(type) == name);
  }
}

TEST_CASE("a header without tensors is a file without tensors", "[safetensors]") {
  REQUIRE(parse(file_text("{}", ""))->tensors.empty());
  REQUIRE(fault_of("{}", "abc") == "has 3 bytes after its last tensor");
}

TEST_CASE("a length that cannot be is refused", "[safetensors]") {
  REQUIRE(parse("").error().text == "is too short for a safetensors file (0 bytes)");
  REQUIRE(parse("1234567").error().text == "is too short for a safetensors file (7 bytes)");
  REQUIRE(parse(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)).error().text ==
          "states a header of 100000001 bytes, more than the format's limit of 100000000: "
          "it is no safetensors file, or damaged");
  REQUIRE(parse(std::string("\x03\0\0\0\0\0\0\0{}", 10)).error().text ==
          "states a header of 3 bytes, but has only 10: it is cut short or damaged");
}

TEST_CASE("a header that is no JSON object in UTF-8 is refused", "[safetensors]") {
  REQUIRE(fault_of("", "") == "has a header that does not begin with '{'");
  REQUIRE(fault_of(" {}", "") == "has a header that does not begin with '{'");
  REQUIRE(fault_of("[]", "") == "has a header that does not begin with '{'");
  REQUIRE(fault_of("{", "") == "has a header that is not JSON in UTF-8, at its byte 2");
  REQUIRE(fault_of("{}x", "") == "has a header that is not JSON in UTF-8, at its byte 3");
  REQUIRE(fault_of("{\"\xff\":{}}", "") == "has a header that is not JSON in UTF-8, at its byte 3");
  REQUIRE(fault_of(std::string("{}\0", 3), "") == "has a zero byte in its header");
}

TEST_CASE("a name that stands twice is refused wherever it stands", "[safetensors]") {
  const std::string empty = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  REQUIRE(fault_of("{\"t\":" + empty + ",\"t\":" + empty + "}", "") ==
          "has the tensor \"t\" twice");
  REQUIRE(fault_of(R"({"__metadata__":{},"__metadata__":{}})", "") == "has \"__metadata__\" twice");
  REQUIRE(fault_of(R"({"__metadata__":{"a":"1","a":"1"}})", "") ==
          "has the key \"a\" twice in \"__metadata__\"");
  REQUIRE(fault_of(one(R"("dtype":"U8","dtype":"U8")"), "") ==
          "tensor \"t\" has the key \"dtype\" twice");
}

TEST_CASE("a tensor has its three members, and each is of the right kind", "[safetensors]") {
  REQUIRE(fault_of(one(R"("shape":[0],"data_offsets":[0,0])"), "") ==
          "tensor \"t\" lacks \"dtype\"");
  REQUIRE(fault_of(one(R"("dtype":"U8","data_offsets":[0,0])"), "") ==
          "tensor \"t\" lacks \"shape\"");
  REQUIRE(fault_of(one(R"("dtype":"U8","shape":[0])"), "") ==
          "tensor \"t\" lacks \"data_offsets\"");
  REQUIRE(fault_of(one(R"("stride":[1])"), "") == "tensor \"t\" has the unknown key \"stride\"");
  REQUIRE(fault_of(one(R"("dtype":5)"), "") == "tensor \"t\" has the number 5 in \"dtype\"");
  REQUIRE(fault_of(one(R"("dtype":null)"), "") == "tensor \"t\" has null in \"dtype\"");
  REQUIRE(fault_of(one(R"("dtype":true)"), "") == "tensor \"t\" has a truth value in \"dtype\"");
  REQUIRE(fault_of(one(R"("dtype":["U8"])"), "") == "tensor \"t\" has an array in \"dtype\"");
  REQUIRE(fault_of(one(R"("shape":"2")"), "") == "tensor \"t\" has a text in \"shape\"");
  REQUIRE(fault_of(one(R"("shape":{})"), "") == "tensor \"t\" has an object in \"shape\"");
  REQUIRE(fault_of(one(R"("shape":[-1])"), "") == "tensor \"t\" has the number -1 in \"shape\"");
  REQUIRE(fault_of(one(R"("shape":[1.0])"), "") ==
          "tensor \"t\" has the number \"1.0\" in \"shape\"");
  REQUIRE(fault_of(one(R"("shape":[[1]])"), "") == "tensor \"t\" has an array in \"shape\"");
  REQUIRE(fault_of(one(R"("data_offsets":[0])"), "") ==
          "tensor \"t\" lacks one of its two offsets");
  REQUIRE(fault_of(one(R"("data_offsets":[0,1,2])"), "") ==
          "tensor \"t\" has the number 2 in \"data_offsets\"");
  REQUIRE(fault_of(R"({"t":1})", "") == "has the number 1 for the tensor \"t\"");
  REQUIRE(fault_of(R"({"t":[]})", "") == "has an array for the tensor \"t\"");
  REQUIRE(fault_of(R"({"":{}})", "") == "has a tensor without a name");
  REQUIRE(fault_of(R"({"__metadata__":{"a":1}})", "") ==
          "has the number 1 in \"__metadata__\", where only texts may stand");
  REQUIRE(fault_of(R"({"__metadata__":{"a":{}}})", "") ==
          "has an object in \"__metadata__\", where only texts may stand");
}

TEST_CASE("deep nesting is refused where it begins", "[safetensors]") {
  REQUIRE(fault_of("{\"t\":" + std::string(1'000'000, '['), "") ==
          "has an array for the tensor \"t\"");
}

TEST_CASE("types that the format has and Weir has not are named", "[safetensors]") {
  for (const std::string type :
       {"F64", "I16", "U16", "U32", "U64", "F8_E8M0", "F4", "C64", "f32"}) {
    REQUIRE(fault_of(one(R"("dtype":")" + type + R"(","shape":[0],"data_offsets":[0,0])"), "") ==
            "tensor \"t\" has the type \"" + type +
                "\"; Weir moves only F32 F16 BF16 F8_E4M3 F8_E5M2 I8 U8 I32 I64 BOOL");
  }
}

TEST_CASE("a shape must be countable, also where it is empty", "[safetensors]") {
  REQUIRE(fault_of(one(R"("shape":[9223372036854775808])"), "") ==
          "tensor \"t\" has an extent over 2^63");
  const std::string huge = "4611686018427387904";  // 2^62
  REQUIRE(fault_of(one(R"("dtype":"F32","shape":[)" + huge + R"(],"data_offsets":[0,0])"), "") ==
          "tensor \"t\" has a shape of more than 2^63 bytes");
  REQUIRE(
      fault_of(one(R"("dtype":"U8","shape":[0,)" + huge + "," + huge + R"(],"data_offsets":[0,0])"),
               "") == "tensor \"t\" has a shape of more than 2^63 bytes");
  std::string ones = "1";
  for (int i = 1; i < 64; ++i) ones += ",1";
  REQUIRE(
      fault_of(one(R"("dtype":"U8","shape":[)" + ones + R"(],"data_offsets":[0,1])"), "x").empty());
  REQUIRE(fault_of(one(R"("shape":[)" + ones + ",1]"), "") ==
          "tensor \"t\" has more than 64 dimensions");
}

TEST_CASE("offsets must agree with the shape", "[safetensors]") {
  const std::string start = R"("dtype":"F16","shape":[2],"data_offsets":)";
  REQUIRE(fault_of(one(start + "[0,4]"), "abcd").empty());
  REQUIRE(fault_of(one(start + "[0,3]"), "abc") ==
          "tensor \"t\" has data_offsets [0, 3), but type and shape make 4 bytes");
  REQUIRE(fault_of(one(start + "[4,0]"), "abcd") ==
          "tensor \"t\" has data_offsets [4, 0), but type and shape make 4 bytes");
}

TEST_CASE("tensors cover the data exactly", "[safetensors]") {
  const auto two = [](const std::string& first, const std::string& second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  REQUIRE(fault_of(two("[0,4]", "[4,8]"), "abcdefgh").empty());
  REQUIRE(fault_of(two("[4,8]", "[0,4]"), "abcdefgh").empty());
  REQUIRE(fault_of(two("[0,4]", "[3,7]"), "abcdefgh") ==
          "tensor \"b\" begins at byte 3 of the data, inside another tensor: "
          "the one before it ends at 4");
  REQUIRE(fault_of(two("[0,4]", "[5,9]"), "abcdefghi") ==
          "tensor \"b\" begins at byte 5 of the data, after a gap: the one before it ends at 4");
  REQUIRE(fault_of(two("[1,5]", "[5,9]"), "abcdefghi") ==
          "tensor \"a\" begins at byte 1 of the data, after a gap: the one before it ends at 0");
  REQUIRE(fault_of(two("[0,4]", "[4,8]"), "abcdefg") ==
          "tensor \"b\" ends at byte 8 of the data, which has only 7: "
          "the file is cut short or damaged");
  REQUIRE(fault_of(two("[0,4]", "[4,8]"), "abcdefghi") == "has 1 bytes after its last tensor");
  REQUIRE(fault_of(two("[0,4]", "[18446744073709551612,18446744073709551615]"), "abcdefgh") ==
          "tensor \"b\" has data_offsets [18446744073709551612, 18446744073709551615), "
          "but type and shape make 4 bytes");
}

}  // namespace weir
