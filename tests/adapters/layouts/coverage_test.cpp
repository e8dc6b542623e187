#include <catch2/catch_test_macros.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/adapters/layouts/small_models.hpp"

// Goal: whatever the configuration, the ranks together hold every element of the model, and no
// place of a local tensor holds two. Method: random small models and layouts; every element of
// every piece is visited and counted, in the canonical tensor and in the local one.

namespace weir {

namespace {

constexpr int configurations = 400;

/// Small numbers from a seeded engine, the same on every platform.
class Chooser {
 public:
  explicit Chooser(std::uint32_t seed) : engine_(seed) {}

  std::int64_t from(std::int64_t least, std::int64_t most) {
    return least +
           static_cast<std::int64_t>(engine_() % static_cast<std::uint32_t>(most - least + 1));
  }
  bool coin() { return from(0, 1) == 1; }

 private:
  std::mt19937 engine_;
};

ModelConfig random_config(Chooser& choose) {
  ModelConfig config = llama_config(1, 1);
  config.num_key_value_heads = choose.from(1, 4);
  config.num_attention_heads = config.num_key_value_heads * choose.from(1, 4);
  config.head_dim = choose.from(1, 4);
  config.hidden_size = choose.from(1, 5);
  config.intermediate_size = choose.from(1, 24);
  config.vocab_size = choose.from(1, 300);
  config.num_hidden_layers = choose.from(1, 5);
  config.tie_word_embeddings = choose.coin();
  config.qkv_bias = choose.coin();
  config.output_bias = choose.coin();
  config.mlp_bias = choose.coin();
  config.qk_norm = choose.coin();
  return config;
}

LayoutSpec random_spec(Chooser& choose, std::int64_t layers) {
  LayoutSpec spec;
  const std::int64_t engine = choose.from(0, 3);
  if (engine == 3) {
    const std::int64_t dp = choose.from(1, 2);
    return spec_of("sglang:tp=" + std::to_string(dp * choose.from(1, 4)) +
                   ",dp=" + std::to_string(dp) + ",pp=" + std::to_string(choose.from(1, 3)));
  }
  if (engine == 0) return spec_of("fsdp2:dp=" + std::to_string(choose.from(1, 9)));
  if (engine == 1) {
    return spec_of("vllm:tp=" + std::to_string(choose.from(1, 8)) +
                   ",pp=" + std::to_string(choose.from(1, 3)));
  }
  spec.name = "megatron";
  spec.options = {
      {"tp", choose.from(1, 8)}, {"pp", choose.from(1, 3)}, {"vocab_multiple", choose.from(1, 20)}};
  if (spec.options["pp"] > 1) spec.options["vpp"] = choose.from(1, 2);
  if (choose.coin()) {
    const std::int64_t chunks = spec.options["pp"] * std::max<std::int64_t>(1, spec.options["vpp"]);
    spec.options["vpp"] = chunks / spec.options["pp"];
    for (std::int64_t chunk = 0; chunk + 1 < chunks; ++chunk) {
      spec.layers.push_back(choose.from(0, layers));
      layers -= spec.layers.back();
    }
    spec.layers.push_back(layers);
  }
  return spec;
}

/// Calls `visit(canonical element, local element)` for every element of the piece.
template <class Visit>
void for_each_element(const LocalPiece& piece, const Dims& shape, Visit visit) {
  const Dims canonical = dense_strides(shape, 1);
  const int rank = shape.rank();
  Dims index = Dims::filled(rank, 0);
  while (true) {
    std::int64_t from = 0;
    std::int64_t to = piece.offset;
    for (int dim = 0; dim < rank; ++dim) {
      from += (piece.box.start[dim] + index[dim]) * canonical[dim];
      to += index[dim] * piece.stride[dim];
    }
    visit(from, to);
    int dim = rank - 1;
    while (dim >= 0 && ++index[dim] == piece.box.extent[dim]) index[dim--] = 0;
    if (dim < 0) return;
  }
}

/// How often each element of each tensor of the model is held. Requires that pieces lie within
/// their canonical and local tensors, are not empty, and do not meet in the local one.
std::vector<std::vector<int>> count_elements(const Model& model,
                                             const std::vector<RankLayout>& ranks) {
  std::vector<std::vector<int>> counts;
  for (const Tensor& tensor : model.tensors) {
    counts.emplace_back(static_cast<std::size_t>(element_count(tensor.shape)));
  }
  for (const RankLayout& rank : ranks) {
    for (const LocalTensor& local : rank.tensors) {
      std::vector<bool> taken(bytes_of(local) / size_of(local.type));
      for (const LocalPiece& piece : local.pieces) {
        const Dims& shape = model.tensors.at(piece.tensor).shape;
        REQUIRE(fits(piece.box, shape));
        REQUIRE(element_count(piece.box.extent) > 0);
        for_each_element(piece, shape, [&](std::int64_t from, std::int64_t to) {
          const auto place = static_cast<std::size_t>(to);
          if (to < 0 || place >= taken.size() || taken[place]) FAIL(local.name);
          taken[place] = true;
          ++counts[piece.tensor][static_cast<std::size_t>(from)];
        });
      }
    }
  }
  return counts;
}

}  // namespace

TEST_CASE("the ranks hold the whole model, and no place holds two elements", "[layouts]") {
  const std::uint32_t seed = 20260801;
  Chooser choose(seed);
  int laid_out = 0;
  for (int trial = 0; laid_out < configurations; ++trial) {
    REQUIRE(trial < configurations * 20);
    const Model model = small_model(random_config(choose));
    const LayoutSpec spec = random_spec(choose, model.config.num_hidden_layers);
    if (!lay_out(model, spec, 0)) continue;  // This tp or pp does not fit; its refusal has tests.
    INFO("seed " << seed << " trial " << trial << ": " << text_of(spec));
    std::vector<RankLayout> ranks;
    for (std::uint32_t rank = 0; rank < size_of(spec)->ranks; ++rank) {
      const auto layout = lay_out(model, spec, rank);
      REQUIRE(layout.has_value());
      ranks.push_back(*layout);
    }
    const auto counts = count_elements(model, ranks);
    for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
      const int least = *std::ranges::min_element(counts[tensor]);
      const int most = *std::ranges::max_element(counts[tensor]);
      INFO(model.tensors[tensor].name);
      REQUIRE(least >= 1);
      // No rule replicates a part of a matrix more often than another part of it.
      REQUIRE(least == most);
      if (spec.name == "fsdp2") REQUIRE(most == 1);
    }
    ++laid_out;
  }
}

TEST_CASE("the ranks hold every expert, shared experts and layers of MTP too", "[layouts]") {
  ModelConfig config = latent_config(6);
  config.hidden_size = 4;
  config.mtp_layers = 1;
  config.experts.intermediate_size = config.experts.shared_intermediate_size = 8;
  const Model model = *model_of(config);
  for (const char* spec :
       {"megatron:tp=2,ep=3,etp=4,pp=2", "megatron:tp=4,ep=2,etp=1,experts=sequential",
        "megatron:tp=2,glu_interleave=2", "vllm:tp=4,mtp=keep", "vllm:tp=2,dp=2,ep=4,mtp=keep",
        "vllm:tp=4,ep=4,placement=round_robin,mtp=keep", "vllm:tp=2,ep=2,redundant=3,mtp=keep",
        "sglang:tp=4,ep=2,dp=2,mtp=keep", "sglang:tp=4,shared=fused,gate_up=w31,mtp=keep",
        "fsdp2:dp=5,experts=packed", "hf:experts=packed"}) {
    INFO(spec);
    std::vector<RankLayout> ranks;
    for (std::uint32_t rank = 0; rank < size_of(spec_of(spec))->ranks; ++rank) {
      ranks.push_back(rank_of(model, spec, rank));
    }
    const auto counts = count_elements(model, ranks);
    for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
      INFO(model.tensors[tensor].name);
      REQUIRE(*std::ranges::min_element(counts[tensor]) >= 1);
      REQUIRE(*std::ranges::min_element(counts[tensor]) ==
              *std::ranges::max_element(counts[tensor]));
    }
    for (RankLayout& layout : ranks) {
      std::ranges::sort(layout.tensors, {}, &LocalTensor::name);
      REQUIRE(std::ranges::adjacent_find(layout.tensors, {}, &LocalTensor::name) ==
              layout.tensors.end());
    }
  }
}

TEST_CASE("a rank's local names are distinct", "[layouts]") {
  ModelConfig config = llama_config(4, 2, 2);
  config.num_hidden_layers = 4;
  config.qkv_bias = config.output_bias = config.mlp_bias = config.qk_norm = true;
  const Model model = small_model(config);
  for (const char* spec : {"hf", "fsdp2:dp=2", "megatron:pp=2,vpp=2", "vllm:tp=2"}) {
    RankLayout layout = rank_of(model, spec, 0);
    std::ranges::sort(layout.tensors, {}, &LocalTensor::name);
    REQUIRE(std::ranges::adjacent_find(layout.tensors, {}, &LocalTensor::name) ==
            layout.tensors.end());
  }
}

}  // namespace weir
