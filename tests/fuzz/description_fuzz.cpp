// Goal: no text whatever makes the reader of description files crash, hang or lay out what is not
// there. Method: libFuzzer; what is read is laid out for a small model, and every piece is checked
// against its tensors.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "adapters/layouts/internal/description.hpp"
#include "adapters/model/model.hpp"
#include "runtime/assert.hpp"

namespace weir {
namespace {

Model small_model() {
  ModelConfig config;
  config.family = "llama";
  config.hidden_size = 4;
  config.num_hidden_layers = 2;
  config.num_attention_heads = config.num_key_value_heads = 2;
  config.head_dim = 2;
  config.intermediate_size = 4;
  config.vocab_size = 6;
  return *model_of(config);
}

void check(const Model& model, const RankLayout& layout) {
  for (const LocalTensor& local : layout.tensors) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : local.shape) elements *= extent;
    for (const LocalPiece& piece : local.pieces) {
      WEIR_ASSERT(fits(piece.box, model.tensors[piece.tensor].shape));
      std::int64_t last = piece.offset;
      for (int dim = 0; dim < piece.stride.rank(); ++dim) {
        last += (piece.box.extent[dim] - 1) * piece.stride[dim];
      }
      WEIR_ASSERT(piece.offset >= 0 && last < elements);
    }
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weir;
  static const Model model = small_model();
  static const TensorIndex index(model);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto description = parse_description(text, "x.toml");
  if (!description) {
    WEIR_ASSERT(description.error().text.starts_with("x.toml"));
    WEIR_ASSERT(description.error().text.find('\n') == std::string::npos);
    return 0;
  }
  LayoutSpec spec{.name = "x.toml", .options = {}, .layers = {}, .dtype = std::nullopt};
  for (const auto& [name, value] : description->options) spec.options.emplace(name, value);
  const auto ranks = described_size(*description, spec);
  if (!ranks) return 0;
  const auto layout = described_rank(*description, index, spec, ranks->ranks - 1);
  if (layout) check(model, *layout);
  return 0;
}
