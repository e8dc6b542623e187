// All of a decoder on one rank of vLLM or SGLang, written down as lists of rows.

#include "adapters/oracle/internal/serving_model.hpp"

#include <iterator>
#include <numeric>
#include <string>

namespace weir::oracle::internal {

bool layers_fit(const ModelConfig& config, const LayoutSpec& spec, std::int64_t stages,
                RankWriter& writer) {
  if (spec.layers.empty()) return true;
  bool sane = std::ssize(spec.layers) == stages;
  for (const std::int64_t layers : spec.layers) sane &= layers >= 0;
  return writer.require(sane && std::accumulate(spec.layers.begin(), spec.layers.end(),
                                                std::int64_t{0}) == config.num_hidden_layers,
                        "layers= needs pp counts that add up to num_hidden_layers");
}

void write_serving_model(const ModelConfig& config, const ServingStage& stage, RankWriter& writer) {
  const std::int64_t vocabulary = padded_up(config.vocab_size, 64);
  const auto put_vocabulary = [&](const std::string& local, const std::string& table,
                                  const Share& share) {
    const std::int64_t count = vocabulary / share.count;
    writer.put_padded(local, {table, config.vocab_size, config.hidden_size}, share.index * count,
                      count);
  };
  const std::string embedding = embedding_of(config);
  const bool first = stage.stage == 0;
  const bool last = stage.stage == std::ssize(stage.layers_of_stages) - 1;
  const bool own_table = last && !first && config.tie_word_embeddings;
  const bool own_embedding = own_table && stage.last_stages_own_table == embedding;
  if (first || own_embedding || (last && stage.mtp)) {
    put_vocabulary(stage.table.empty() ? embedding : stage.table, embedding, stage.embedding);
  }
  std::int64_t layer = 0;
  for (std::int64_t other = 0; other < std::ssize(stage.layers_of_stages); ++other) {
    const std::int64_t end = layer + stage.layers_of_stages[static_cast<std::size_t>(other)];
    for (; layer < end; ++layer) {
      if (other != stage.stage) continue;
      write_serving_layer(config, stage.rank, layer, layer_of(layer), writer);
    }
  }
  if (!last) return;
  writer.put_vector("model.norm.weight", writer.vector("model.norm.weight", config.hidden_size));
  if (!config.tie_word_embeddings) put_vocabulary("lm_head.weight", "lm_head.weight", stage.head);
  if (own_table && !own_embedding) {
    put_vocabulary(stage.last_stages_own_table, embedding, stage.head);
  }
  for (std::int64_t i = 0; stage.mtp && i < config.mtp_layers; ++i) {
    const std::int64_t index = config.num_hidden_layers + i;
    const std::string at = layer_of(index);
    const std::int64_t hidden = config.hidden_size;
    writer.put_vector(at + "enorm.weight", writer.vector(at + "enorm.weight", hidden));
    writer.put_vector(at + "hnorm.weight", writer.vector(at + "hnorm.weight", hidden));
    writer.put_matrix(at + "eh_proj.weight",
                      writer.matrix(at + "eh_proj.weight", hidden, 2 * hidden), 2 * hidden);
    writer.put_vector(at + "shared_head.norm.weight",
                      writer.vector(at + "shared_head.norm.weight", hidden));
    write_serving_layer(config, stage.rank, index, at + stage.mtp_block, writer);
  }
}

}  // namespace weir::oracle::internal
