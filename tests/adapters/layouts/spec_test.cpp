#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "adapters/layouts/layout.hpp"

// Goal: what a person types as a layout is understood or refused in one line that says what to
// change. Method: texts and specs worked by hand, every refusal with its whole text.

namespace weir {

namespace {

std::string refusal(std::string_view text) {
  const auto spec = parse_layout(text);
  REQUIRE_FALSE(spec.has_value());
  REQUIRE(spec.error().code == ErrorCode::invalid);
  return spec.error().text;
}

}  // namespace

TEST_CASE("a layout's text gives its name, numbers, layers and type", "[layouts]") {
  REQUIRE(parse_layout("hf") == LayoutSpec{.name = "hf", .options = {}, .layers = {}, .dtype = {}});
  REQUIRE(parse_layout("megatron:tp=2,layers=2-1-0-3,pp=2,vpp=2,dtype=f32") ==
          LayoutSpec{.name = "megatron",
                     .options = {{"tp", 2}, {"pp", 2}, {"vpp", 2}},
                     .layers = {2, 1, 0, 3},
                     .dtype = ElementType::f32});
  REQUIRE(parse_layout("fsdp2:dp=65536")->options.at("dp") == 65536);
}

TEST_CASE("a spec's text parses back to the same spec", "[layouts]") {
  const std::vector<std::string> texts = {
      "hf", "hf:dtype=bf16", "fsdp2:dp=3,hsdp=2", "vllm:tp=4,dtype=f32",
      "megatron:dp=2,pp=2,tp=2,vocab_multiple=64,vpp=2,layers=2-1-1-2,dtype=bf16"};
  for (const std::string& text : texts) {
    const auto spec = parse_layout(text);
    REQUIRE(spec.has_value());
    REQUIRE(text_of(*spec) == text);
    REQUIRE(parse_layout(text_of(*spec)) == *spec);
  }
}

TEST_CASE("a text that is no layout is refused with what to write instead", "[layouts]") {
  REQUIRE(refusal("") == "empty layout: write a name and its options, as in megatron:tp=2,pp=2");
  REQUIRE(refusal("deepspeed:tp=2") ==
          "unknown layout 'deepspeed': use hf, fsdp2, megatron or vllm");
  REQUIRE(refusal("vllm:pp=2") == "layout vllm has no option 'pp': use tp or dtype");
  REQUIRE(refusal("hf:tp=1") == "layout hf has no option 'tp': use dtype");
  REQUIRE(refusal("vllm:layers=1-1") == "layout vllm has no option 'layers': use tp or dtype");
  REQUIRE(refusal("megatron:ep=2") ==
          "layout megatron has no option 'ep': "
          "use tp, pp, vpp, dp, vocab_multiple, layers or dtype");
  REQUIRE(refusal("vllm:=2") == "layout vllm has no option '': use tp or dtype");
}

TEST_CASE("an option is written once, as a key and a value", "[layouts]") {
  const std::string empty =
      " has an empty option: write name:key=value,key=value without a spare ':' or ','";
  REQUIRE(refusal("vllm:") == "'vllm:'" + empty);
  REQUIRE(refusal("vllm:tp=2,") == "'vllm:tp=2,'" + empty);
  REQUIRE(refusal("fsdp2:dp=2,,hsdp=2") == "'fsdp2:dp=2,,hsdp=2'" + empty);
  REQUIRE(refusal("vllm:tp") == "option 'tp' has no value: write tp=VALUE");
  REQUIRE(refusal("vllm:tp=2,tp=2") == "option tp is given twice: leave one out");
  REQUIRE(refusal("hf:dtype=f32,dtype=f32") == "option dtype is given twice: leave one out");
  REQUIRE(refusal("megatron:layers=0,layers=0") == "option layers is given twice: leave one out");
}

TEST_CASE("numbers are whole, decimal and within bounds", "[layouts]") {
  const std::string advice = ": use a whole number from 1 to 65536";
  for (const std::string value :
       {"", "two", "2x", " 2", "+2", "2.0", "0x2", "99999999999999999999"}) {
    REQUIRE(refusal("vllm:tp=" + value) == "tp=" + value + advice);
  }
  for (const std::string value : {"0", "-1", "65537"}) {
    REQUIRE(refusal("vllm:tp=" + value) == "tp=" + value + " is out of bounds" + advice);
  }
}

TEST_CASE("layers are whole numbers joined by dashes", "[layouts]") {
  const std::string advice =
      ": use whole numbers from 0 to 65536, one for each pipeline chunk, joined by '-', "
      "as in layers=2-1-1-2";
  for (const std::string value : {"", "2-", "-2", "2--2", "a", "2-b", "2.1"}) {
    REQUIRE(refusal("megatron:layers=" + value) == "layers=" + value + advice);
  }
  REQUIRE(refusal("megatron:layers=1-65537") == "layers: 65537 is out of bounds" + advice);
}

TEST_CASE("the type of a layout is f32 or bf16", "[layouts]") {
  REQUIRE(parse_layout("hf:dtype=f32")->dtype == ElementType::f32);
  for (const std::string value : {"", "f16", "i32", "F32", "float32"}) {
    REQUIRE(refusal("hf:dtype=" + value) == "dtype=" + value + ": use f32 or bf16");
  }
}

TEST_CASE("a layout knows its ranks and its replicas", "[layouts]") {
  const auto size = [](std::string_view text) { return *size_of(*parse_layout(text)); };
  REQUIRE(size("hf").ranks == 1);
  REQUIRE(size("hf").replicas == 1);
  REQUIRE(size("fsdp2:dp=3,hsdp=2").ranks == 3);
  REQUIRE(size("fsdp2:dp=3,hsdp=2").replicas == 2);
  REQUIRE(size("megatron:tp=4,pp=2,vpp=3,dp=5").ranks == 8);
  REQUIRE(size("megatron:tp=4,pp=2,vpp=3,dp=5").replicas == 5);
  REQUIRE(size("vllm:tp=4").ranks == 4);
  REQUIRE(size("vllm:tp=4").replicas == 1);
}

TEST_CASE("a layout whose options contradict each other has no size", "[layouts]") {
  const auto text = [](const LayoutSpec& spec) {
    const auto size = size_of(spec);
    REQUIRE_FALSE(size.has_value());
    REQUIRE(size.error().code == ErrorCode::invalid);
    return size.error().text;
  };
  REQUIRE(text(*parse_layout("megatron:vpp=2")) ==
          "vpp=2 cuts pipeline stages, and there is one stage only: "
          "give pp=2 or more, or leave vpp out");
  REQUIRE(text(*parse_layout("megatron:pp=2,vpp=2,layers=2-1-1")) ==
          "layers= has 3 numbers: give pp x vpp = 4");
  REQUIRE(text(*parse_layout("megatron:tp=65536,pp=2")) ==
          "megatron would have 131072 ranks: use at most 65536");
}

TEST_CASE("a spec made by hand is checked as its text would be", "[layouts]") {
  const auto text = [](const LayoutSpec& spec) { return size_of(spec).error().text; };
  LayoutSpec spec{.name = "nemo", .options = {}, .layers = {}, .dtype = {}};
  REQUIRE(text(spec) == "unknown layout 'nemo': use hf, fsdp2, megatron or vllm");
  spec.name = "vllm";
  spec.options = {{"dp", 2}};
  REQUIRE(text(spec) == "layout vllm has no option 'dp': use tp or dtype");
  spec.options = {{"tp", 0}};
  REQUIRE(text(spec) == "tp=0 is out of bounds: use a whole number from 1 to 65536");
  spec.options = {};
  spec.layers = {1};
  REQUIRE(text(spec) == "layout vllm has no option 'layers': use tp or dtype");
  spec.layers = {};
  spec.dtype = ElementType::i8;
  REQUIRE(text(spec) == "dtype=i8: use f32 or bf16");
}

}  // namespace weir
