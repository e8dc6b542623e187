#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "tests/adapters/layouts/small_models.hpp"
#include "tests/adapters/oracle/carried_plan.hpp"
#include "tests/adapters/oracle/decoder_model.hpp"

namespace weir::oracle {
namespace {

// Goal: what went wrong in other systems that move weights, by their own reports, can't happen
// here. Method: the reported configuration, small where its size is not the point; a plan is
// carried out between shards in memory and every byte of every rollout rank is compared with the
// reference, for one version or for several.

ModelConfig moe_config(std::int64_t experts) {
  ModelConfig config = llama_config(8, 8, 1);
  config.family = "qwen3_moe";
  config.experts = {.count = experts, .intermediate_size = 8};
  return config;
}

/// One plan from one layout to another, and the memory of all shards.
class Transfer {
 public:
  Transfer(const ModelConfig& config, const std::string& train, const std::string& rollout)
      : model_(decoder_model(config)), dice_(7), canonical_(random_bytes(model_, dice_)) {
    REQUIRE(add_side(shards_, model_, canonical_, Side::trainer, spec_of(train), 1));
    REQUIRE(add_side(shards_, model_, canonical_, Side::rollout, spec_of(rollout), 1));
    std::vector<Manifest> manifests;
    for (const auto& [id, shard] : shards_) manifests.push_back(shard->manifest);
    auto plan = make_plan(manifests);
    if (plan) {
      plan_ = *std::move(plan);
    } else {
      refusal_ = plan.error().text;
    }
  }

  /// Why there is no plan; empty where there is one.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] const Plan& plan() const { return plan_; }
  [[nodiscard]] const Model& model() const { return model_; }

  void train(std::uint64_t version) {
    for (const auto& [id, shard] : shards_) {
      if (id.side != Side::trainer) continue;
      const auto filled = fill_rank(shard->memory, version, shard->region, workers_);
      INFO((filled ? "" : filled.error().text));
      REQUIRE(filled.has_value());
    }
  }

  /// Carries out all copies in the plan's order, or the other way round.
  void move(bool backwards = false) {
    INFO(refusal_);
    REQUIRE(refusal_.empty());
    for (const PlanPart& part : plan_.parts) {
      std::vector<Copy> copies(part.copies.begin(), part.copies.end());
      if (backwards) std::ranges::reverse(copies);
      for (const Copy& copy : copies) {
        carry_out(copy, *shards_.at(plan_.sources.at(copy.source).shard), *shards_.at(part.target));
      }
    }
  }

  void check(std::uint64_t version) {
    for (const auto& [id, shard] : shards_) {
      if (id.side != Side::rollout) continue;
      const auto compared = compare_rank(shard->memory, version, shard->region, workers_);
      INFO((compared ? "" : compared.error().text));
      REQUIRE(compared.has_value());
    }
  }

  /// Whatever has to happen for one version to arrive, and the comparison.
  void bring(std::uint64_t version) {
    train(version);
    move();
    check(version);
  }

  /// What an engine does that turns weights into a kernel's order in place: nothing that was
  /// brought is where it was.
  void shuffle() {
    for (const auto& [id, shard] : shards_) {
      for (std::size_t i = 0; id.side == Side::rollout && i < shard->region.size(); ++i) {
        if (shard->writes[i] > 0) shard->region[i] ^= std::byte{0x5a};
      }
    }
  }

  [[nodiscard]] std::vector<std::byte> rollout_bytes(std::uint32_t rank) const {
    return shards_.at({.side = Side::rollout, .replica = 0, .rank = rank})->region;
  }

 private:
  Model model_;
  Dice dice_;
  Canonical canonical_;
  Workers workers_{1};
  Shards shards_;
  Plan plan_;
  std::string refusal_;
};

}  // namespace

TEST_CASE("modelexpress#650: most Megatron ranks own no key or value, and none is lost",
          "[oracle][bugs]") {
  const ModelConfig config = llama_config(64, 2, 128);
  for (const char* rollout : {"hf", "vllm:tp=8", "sglang:tp=4", "fsdp2:dp=3"}) {
    INFO(rollout);
    Transfer(config, "megatron:tp=8", rollout).bring(1);
  }
}

TEST_CASE("sglang#14178: latent attention arrives whole, in whatever portions it is fetched",
          "[oracle][bugs]") {
  Transfer forwards(latent_config(4), "megatron:tp=2,ep=2", "sglang:tp=2,ep=2");
  Transfer backwards(latent_config(4), "megatron:tp=2,ep=2", "sglang:tp=2,ep=2");
  forwards.train(1);
  backwards.train(1);
  forwards.move();
  backwards.move(true);
  forwards.check(1);
  REQUIRE(forwards.rollout_bytes(0) == backwards.rollout_bytes(0));
  REQUIRE(forwards.rollout_bytes(1) == backwards.rollout_bytes(1));
  // What is absorbed from kv_b_proj is declared as derived: no copy writes it, and a hook rebuilds
  // it once all of a version is there.
  const auto layout = lay_out(forwards.model(), spec_of("sglang:tp=2,ep=2"), 0);
  REQUIRE(layout.has_value());
  REQUIRE(layout->derived.size() == 4);
  for (const DerivedTensor& derived : layout->derived) {
    REQUIRE(std::ranges::find(layout->tensors, derived.name, &weir::LocalTensor::name) ==
            layout->tensors.end());
    REQUIRE(std::ranges::find(layout->tensors, derived.from, &weir::LocalTensor::name) !=
            layout->tensors.end());
  }
}

TEST_CASE("slime#2280: grouped experts that are cut by expert tensor parallelism arrive whole",
          "[oracle][bugs]") {
  Transfer(moe_config(4), "megatron:tp=2,ep=2,etp=2", "vllm:tp=4").bring(1);
  Transfer(moe_config(4), "megatron:tp=1,ep=2,etp=2", "vllm:tp=2,ep=2").bring(1);
}

TEST_CASE(
    "Megatron-Bridge#1817: gate and up are cut apart before they are stacked, with experts "
    "spread out too",
    "[oracle][bugs]") {
  Transfer(moe_config(8), "megatron:tp=4,ep=8,etp=1", "hf").bring(1);
  Transfer(moe_config(8), "megatron:tp=4,ep=8,etp=4", "sglang:tp=4,ep=2").bring(1);
}

TEST_CASE("NeMo-RL#2802, Automodel#1324: interleaved groups are taken apart row by row",
          "[oracle][bugs]") {
  for (const char* train : {"megatron", "megatron:tp=2", "megatron:tp=4"}) {
    INFO(train);
    Transfer(llama_config(8, 2, 2), train, "hf").bring(1);
    Transfer(llama_config(8, 2, 2), train, "vllm:tp=4").bring(1);
  }
}

TEST_CASE("slime#1799: a local expert's number is not a global one", "[oracle][bugs]") {
  ModelConfig config = moe_config(512);
  config.hidden_size = config.num_attention_heads = config.num_key_value_heads = 1;
  config.experts.intermediate_size = 1;
  Transfer(config, "megatron:ep=8", "vllm:tp=1").bring(1);
  Transfer(config, "megatron:ep=8", "vllm:dp=16,ep=16").bring(1);
}

TEST_CASE("sglang PR 32430: a kernel that wants up before gate gets it so", "[oracle][bugs]") {
  Transfer up_first(moe_config(2), "megatron:ep=2", "sglang:gate_up=w31");
  Transfer gate_first(moe_config(2), "megatron:ep=2", "sglang:gate_up=w13");
  up_first.bring(1);
  gate_first.bring(1);
  REQUIRE(up_first.rollout_bytes(0) != gate_first.rollout_bytes(0));
}

TEST_CASE("Megatron-Bridge#625, #5375: rows that pad a vocabulary are not exported",
          "[oracle][bugs]") {
  ModelConfig config = llama_config(8, 8, 1);
  config.vocab_size = 151936;
  config.hidden_size = 1;
  Transfer exported(config, "megatron:tp=8", "hf");
  exported.bring(1);
  const auto whole = lay_out(exported.model(), spec_of("hf"), 0);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    const auto found = std::ranges::find(whole->tensors, name, &weir::LocalTensor::name);
    REQUIRE(found->shape == std::vector<std::int64_t>{151936, 1});
  }
}

TEST_CASE("prime-rl#2823, vllm#51665: every copy of tied embeddings comes from the one tensor",
          "[oracle][bugs]") {
  ModelConfig config = llama_config(8, 8, 1);
  config.num_hidden_layers = 2;
  config.tie_word_embeddings = true;
  // SGLang's last stage has a head of its own, vLLM's an embedding: whoever moves the embedding
  // alone reaches both, since there is no other tensor that they could be.
  for (const char* rollout : {"sglang:pp=2", "vllm:pp=2", "megatron:pp=2"}) {
    INFO(rollout);
    Transfer tied(config, "megatron:tp=2,pp=2", rollout);
    tied.bring(1);
    tied.bring(2);
    int copies = 0;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      const auto layout = lay_out(tied.model(), spec_of(rollout), rank);
      for (const weir::LocalTensor& local : layout->tensors) {
        for (const LocalPiece& piece : local.pieces) {
          const std::string& name = tied.model().tensors[piece.tensor].name;
          REQUIRE(name != "lm_head.weight");
          copies += name == "model.embed_tokens.weight" ? 1 : 0;
        }
      }
    }
    REQUIRE(copies == 2);
  }
}

TEST_CASE("sglang#30761, vllm#28425: the same version twice gives the same bytes",
          "[oracle][bugs]") {
  Transfer twice(latent_config(4), "megatron:ep=4", "vllm:tp=2");
  twice.bring(3);
  const std::vector<std::byte> once = twice.rollout_bytes(1);
  twice.bring(3);
  REQUIRE(twice.rollout_bytes(1) == once);
}

TEST_CASE("sglang#27718, miles#1926: a draft model that trainers do not train is refused",
          "[oracle][bugs]") {
  ModelConfig config = latent_config(4);
  config.mtp_layers = 1;
  const Transfer stale(config, "megatron:mtp=drop", "sglang:mtp=keep");
  REQUIRE(stale.refusal().find("unknown name") != std::string::npos);
  REQUIRE(stale.refusal().find("model.layers.2.") != std::string::npos);
  Transfer fresh(config, "megatron:tp=2", "sglang:mtp=keep,tp=2");
  fresh.bring(1);
  REQUIRE(fresh.plan().unused.empty());
  // Where rollouts do without, the plan says which tensors nobody uses: all of the layer's.
  Transfer without(config, "megatron:tp=2", "vllm:tp=2");
  without.bring(1);
  std::size_t of_mtp = 0;
  for (const Tensor& tensor : without.model().tensors) {
    of_mtp += tensor.name.starts_with("model.layers.2.") ? 1 : 0;
  }
  REQUIRE(without.plan().unused.size() == of_mtp);
}

TEST_CASE("sglang#28963: weights that an engine shuffled in place are all brought again, plain",
          "[oracle][bugs]") {
  Transfer again(latent_config(4), "megatron:ep=2", "sglang:tp=2,ep=2");
  for (const std::uint64_t version : {1, 1, 2}) {
    again.bring(version);
    again.shuffle();  // Once for each version, as a hook that installs it does.
  }
}

TEST_CASE("vllm#45835: weights without the scales that go with them are refused, not half loaded",
          "[oracle][bugs]") {
  const Tensor weight{.name = "w.weight", .type = ElementType::f8_e4m3, .shape = {4, 4}};
  const Tensor scale{.name = "w.weight_scale_inv", .type = ElementType::f32, .shape = {1, 1}};
  const auto manifest = [](Side side, std::vector<Tensor> tensors) {
    const Model model{.config = {}, .tensors = std::move(tensors), .aliases = {}};
    return place(model, *lay_out(model, spec_of("hf"), 0), {.side = side}, 1,
                 RegionKind::host_private)

        .manifest;
  };
  const Manifest rollout = manifest(Side::rollout, {weight, scale});
  const auto refused = make_plan(std::vector{manifest(Side::trainer, {weight}), rollout});
  REQUIRE_FALSE(refused.has_value());
  REQUIRE(refused.error().text.find("w.weight_scale_inv") != std::string::npos);
  REQUIRE(make_plan(std::vector{manifest(Side::trainer, {weight, scale}), rollout}).has_value());
}

TEST_CASE("vllm#46725: a draft model gets every version that the model gets, and shares its tables",
          "[oracle][bugs]") {
  ModelConfig config = latent_config(4);
  config.mtp_layers = 1;
  Transfer drafted(config, "megatron:tp=2", "vllm:mtp=keep,tp=2");
  for (const std::uint64_t version : {1, 2}) drafted.bring(version);
  const auto layout = lay_out(drafted.model(), spec_of("vllm:mtp=keep,tp=2"), 0);
  int tables = 0;
  int of_draft = 0;
  for (const weir::LocalTensor& local : layout->tensors) {
    tables += local.name.find("embed") != std::string::npos ? 1 : 0;
    of_draft += local.name.find(".mtp_block.") != std::string::npos ? 1 : 0;
  }
  REQUIRE(tables == 1);
  REQUIRE(of_draft > 0);
}

TEST_CASE("verl#5801: the bias that corrects a router's scores travels like any weight",
          "[oracle][bugs]") {
  Transfer biased(latent_config(4), "megatron:ep=2,dtype=f32", "vllm:tp=2");
  biased.bring(1);
  biased.bring(2);
  ModelConfig forgotten = latent_config(4);
  Model model = decoder_model(forgotten);
  std::erase_if(model.tensors, [](const Tensor& tensor) {
    return tensor.name.ends_with("e_score_correction_bias");
  });
  const auto refused = lay_out(model, spec_of("vllm"), 0);
  REQUIRE(refused.error().text ==
          "the model lacks model.layers.1.mlp.gate.e_score_correction_bias, which by its config it "
          "has: correct the config");
}

TEST_CASE("SkyRL#1345: one plan brings version after version", "[oracle][bugs]") {
  Transfer versions(moe_config(4), "megatron:ep=2,experts=sequential,glu_interleave=2",
                    "sglang:tp=4,ep=2,dp=2");
  for (const std::uint64_t version : {1, 2, 3}) versions.bring(version);
}

}  // namespace weir::oracle
