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
      "hf",
      "hf:dtype=bf16",
      "fsdp2:dp=3,hsdp=2",
      "vllm:tp=4,dtype=f32",
      "megatron:dp=2,pp=2,tp=2,vocab_multiple=64,vpp=2,layers=2-1-1-2,dtype=bf16",
      "vllm:ep=2,redundant=2,tp=2,gate_up=w31,layers=2-1,physical=1-0-1/0-1-1,dtype=f32"};
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
          "unknown layout 'deepspeed': use hf, fsdp2, megatron, vllm, sglang or the name of "
          "a .toml file that describes one");
  REQUIRE(
      refusal("vllm:etp=2") ==
      "layout vllm has no option 'etp': use tp, pp, dp, ep, redundant, placement, gate_up, mtp, "
      "layers, physical, dtype or quant");
  REQUIRE(refusal("hf:tp=1") == "layout hf has no option 'tp': use experts, dtype or quant");
  REQUIRE(refusal("hf:layers=1-1") ==
          "layout hf has no option 'layers': use experts, dtype or quant");
  REQUIRE(refusal("megatron:physical=2") ==
          "layout megatron has no option 'physical': use tp, cp, ep, etp, pp, vpp, dp, "
          "vocab_multiple, glu_interleave, experts, mtp, layers, dtype or quant");
  REQUIRE(refusal("hf:=2") == "layout hf has no option '': use experts, dtype or quant");
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

TEST_CASE("a word is one of those that the option knows", "[layouts]") {
  REQUIRE(parse_layout("vllm:placement=round_robin,ep=2,tp=2")->choices ==
          std::map<std::string, std::string>{{"placement", "round_robin"}});
  REQUIRE(refusal("vllm:placement=random") == "placement=random: use linear or round_robin");
  REQUIRE(refusal("megatron:experts=") == "experts=: use grouped or sequential");
  REQUIRE(refusal("vllm:mtp=1") == "mtp=1: use drop or keep");
  REQUIRE(refusal("vllm:mtp=drop,mtp=drop") == "option mtp is given twice: leave one out");
  LayoutSpec spec = *parse_layout("vllm");
  spec.choices["tp"] = "two";
  REQUIRE(size_of(spec).error().text == "tp=two: use a whole number");
  spec.choices = {};
  spec.options["mtp"] = 1;
  REQUIRE(size_of(spec).error().text ==
          "mtp=1 is out of bounds: use a whole number from 1 to 65536");
}

TEST_CASE("a map of experts is numbers joined by dashes", "[layouts]") {
  const std::string advice =
      ": use numbers of experts from 0 to 65536, one for each physical slot, joined by '-', as in "
      "physical=0-1-2-3-0; maps of several layers are joined by '/', or in a file: "
      "physical=@maps.json";
  REQUIRE(parse_layout("vllm:physical=1-0-1")->physical ==
          std::vector<std::vector<std::int64_t>>{{1, 0, 1}});
  REQUIRE(parse_layout("vllm:physical=1-0-1/0-0-1")->physical ==
          std::vector<std::vector<std::int64_t>>{{1, 0, 1}, {0, 0, 1}});
  REQUIRE(refusal("vllm:physical=1-0/") == "physical=1-0/" + advice);
  REQUIRE(refusal("vllm:physical=1-x") == "physical=1-x" + advice);
  REQUIRE(refusal("vllm:physical=65537") == "physical: 65537 is out of bounds" + advice);
  REQUIRE(refusal("vllm:physical=0,physical=0") == "option physical is given twice: leave one out");
  REQUIRE(refusal("vllm:redundant=-1") ==
          "redundant=-1 is out of bounds: use a whole number from 0 to 65536");
  REQUIRE(refusal("vllm:redundant=x") == "redundant=x: use a whole number from 0 to 65536");
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
  REQUIRE(size("vllm:tp=4,dp=2,pp=3,ep=8").ranks == 24);
  REQUIRE(size("sglang:tp=8,dp=2,ep=4,pp=2").ranks == 16);
  // The least run of ranks that holds everything once: tp x cp and etp x ep both divide it.
  REQUIRE(size("megatron:ep=64,pp=4").ranks == 256);
  REQUIRE(size("megatron:tp=8,ep=4,etp=1,pp=2,dp=3").ranks == 16);
  REQUIRE(size("megatron:tp=8,ep=4,etp=1,pp=2,dp=3").replicas == 3);
  REQUIRE(size("megatron:tp=2,ep=8").ranks == 16);  // etp is as tp where it is left out.
  REQUIRE(size("megatron:tp=2,cp=3,ep=2,etp=2").ranks == 12);
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
  REQUIRE(text(*parse_layout("megatron:tp=65536,cp=65536,ep=65536,pp=65536")) ==
          "megatron would have 4294967296 ranks: use at most 65536");
  REQUIRE(text(*parse_layout("vllm:tp=4,ep=2")) ==
          "ep=2: vLLM spreads experts over all tp x dp ranks, use ep=4 or leave ep out");
  REQUIRE(text(*parse_layout("vllm:tp=4,redundant=2")) ==
          "redundant= and physical= place whole experts: give ep= as well");
  REQUIRE(text(*parse_layout("vllm:tp=4,placement=round_robin")) ==
          "placement=round_robin needs ep=, and neither redundant= nor physical=");
  REQUIRE(text(*parse_layout("vllm:tp=4,ep=4,redundant=4,placement=round_robin")) ==
          "placement=round_robin needs ep=, and neither redundant= nor physical=");
  REQUIRE(text(*parse_layout("vllm:pp=2,layers=1-1-1")) == "layers= has 3 numbers: give pp = 2");
  REQUIRE(text(*parse_layout("sglang:tp=4,dp=3")) ==
          "dp=3 does not divide 4 ranks of tp: use a divisor of 4");
  REQUIRE(text(*parse_layout("sglang:tp=4,ep=8")) ==
          "ep=8 does not divide 4 ranks of tp: use a divisor of 4");
  REQUIRE(text(*parse_layout("sglang:tp=2,layers=1-1")) == "layers= has 2 numbers: give pp = 1");
}

TEST_CASE("a spec made by hand is checked as its text would be", "[layouts]") {
  const auto text = [](const LayoutSpec& spec) { return size_of(spec).error().text; };
  LayoutSpec spec{.name = "nemo", .options = {}, .layers = {}, .dtype = {}};
  REQUIRE(text(spec) ==
          "unknown layout 'nemo': use hf, fsdp2, megatron, vllm, sglang or the name of "
          "a .toml file that describes one");
  spec.name = "hf";
  spec.options = {{"dp", 2}};
  REQUIRE(text(spec) == "layout hf has no option 'dp': use experts, dtype or quant");
  spec.name = "vllm";
  spec.options = {{"tp", 0}};
  REQUIRE(text(spec) == "tp=0 is out of bounds: use a whole number from 1 to 65536");
  spec.name = "fsdp2";
  spec.options = {};
  spec.layers = {1};
  REQUIRE(text(spec) ==
          "layout fsdp2 has no option 'layers': use dp, hsdp, experts, dtype or quant");
  spec.layers = {};
  spec.physical = {{1}};
  REQUIRE(text(spec) ==
          "layout fsdp2 has no option 'physical': use dp, hsdp, experts, dtype or quant");
  spec.physical = {};
  spec.layers = {};
  spec.dtype = ElementType::i8;
  REQUIRE(text(spec) == "dtype=i8: use f32 or bf16");
}

}  // namespace weir
