#pragma once
// Golden files: what a real engine keeps on each of its ranks, for models whose elements are
// numbered, and the same as Weir's layouts say it.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "adapters/files/strict_json.hpp"
#include "adapters/layouts/layout.hpp"
#include "adapters/model/checkpoint_model.hpp"
#include "adapters/model/model.hpp"
#include "adapters/safetensors/safetensors.hpp"
#include "runtime/result.hpp"

namespace weir {

/// One tensor of one rank. Each element is the number of the canonical element that lies there, or
/// 0 for padding.
struct NumberedTensor {
  std::vector<std::int64_t> shape;
  std::vector<std::int32_t> elements;  ///< None where only type and shape are compared.
  std::string type = {};               ///< None where the engine was made to keep f32.
};

/// By the engine's own local names.
using NumberedRank = std::map<std::string, NumberedTensor>;

/// A folder of `tests/engines/golden`, without its elements.
struct GoldenCase {
  std::string name;  ///< "megatron/qwen3.tp2".
  std::filesystem::path folder;
  std::string layout;
  std::uint32_t ranks = 0;
  std::vector<Tensor> canonical;  ///< As Transformers saves the model; sorted by name.
  /// Where weights are codes, of which golden files have only scales: the type and shape of each
  /// local tensor of each rank, "f8_e4m3 512 192".
  std::vector<std::map<std::string, std::string>> kept = {};
  std::string refused = {};  ///< Why the engine does not do it, in its own words, if so.
};

/// All cases below `root`, sorted by name. Throws what a damaged folder makes throw.
inline std::vector<GoldenCase> golden_cases(const std::filesystem::path& root) {
  std::vector<GoldenCase> cases;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().filename() != "case.json") continue;
    const std::filesystem::path folder = entry.path().parent_path();
    const nlohmann::json facts = read_strict_json(entry.path()).value();
    GoldenCase golden{.name = folder.lexically_relative(root).generic_string(),
                      .folder = folder,
                      .layout = facts.at("layout"),
                      .canonical = {}};
    if (facts.contains("refused")) {
      golden.refused = facts.at("refused");
      cases.push_back(std::move(golden));
      continue;
    }
    golden.ranks = static_cast<std::uint32_t>(facts.at("ranks").size());
    for (const nlohmann::json& rank : facts.at("ranks")) {
      if (rank.contains("kept")) golden.kept.push_back(rank.at("kept"));
    }
    const auto buffers = facts.at("buffers").get<std::set<std::string>>();
    for (const auto& [name, shape] : facts.at("canonical").items()) {
      const auto extents = shape.get<std::vector<std::int64_t>>();
      const auto kind = buffers.contains(name) ? TensorKind::buffer : TensorKind::parameter;
      golden.canonical.push_back({.name = name,
                                  .type = ElementType::f32,
                                  .shape = Dims(std::span(extents)),
                                  .kind = kind});
    }
    std::ranges::sort(golden.canonical, {}, &Tensor::name);
    cases.push_back(std::move(golden));
  }
  std::ranges::sort(cases, {}, &GoldenCase::name);
  return cases;
}

/// What the engine kept.
inline NumberedRank golden_rank(const GoldenCase& golden, std::uint32_t rank) {
  const auto path = golden.folder / ("rank-" + std::to_string(rank) + ".safetensors");
  const auto file = SafetensorsFile::open(path).value();
  NumberedRank tensors;
  if (!golden.kept.empty()) {
    for (const auto& [name, text] : golden.kept.at(rank)) {
      std::istringstream words(text);
      NumberedTensor& tensor = tensors[name];
      words >> tensor.type;
      for (std::int64_t extent = 0; words >> extent;) tensor.shape.push_back(extent);
    }
  }
  for (std::size_t index = 0; index < file->tensors().size(); ++index) {
    const FileTensor& tensor = file->tensors()[index];
    NumberedTensor& numbered = tensors[tensor.name];
    numbered.shape = tensor.shape;
    const std::span<const std::byte> bytes = file->data(index);
    numbered.elements.resize(bytes.size() / sizeof(std::int32_t));
    if (!bytes.empty()) std::memcpy(numbered.elements.data(), bytes.data(), bytes.size());
  }
  return tensors;
}

/// Whether golden files have the elements of that tensor. Where weights are codes they have those
/// of scales: the dump held each code against its scale where the engine keeps them.
inline bool is_numbered(const Model& model, const Tensor& tensor) {
  return model.encodings.empty() ||
         std::ranges::any_of(model.encodings, [&](const Encoding& encoding) {
           return tensor.name.ends_with(encoding.scales_suffix);
         });
}

/// The number of each canonical tensor's first element: they run on from 1 over all tensors that
/// are numbered.
inline std::vector<std::int64_t> first_numbers(const Model& model) {
  std::vector<std::int64_t> first;
  std::int64_t next = 1;
  for (const Tensor& tensor : model.tensors) {
    first.push_back(next);
    if (is_numbered(model, tensor)) next += element_count(tensor.shape);
  }
  return first;
}

/// Writes the numbers of one piece's elements to where they lie.
inline void number_piece(const LocalPiece& piece, const Dims& shape, std::int64_t first,
                         NumberedTensor& local) {
  const Dims dense = dense_strides(shape, 1);
  Dims at = Dims::filled(shape.rank(), 0);
  for (std::int64_t left = element_count(piece.box.extent); left > 0; --left) {
    std::int64_t number = first;
    std::int64_t place = piece.offset;
    for (int dim = 0; dim < shape.rank(); ++dim) {
      number += (piece.box.start[dim] + at[dim]) * dense[dim];
      place += at[dim] * piece.stride[dim];
    }
    local.elements.at(static_cast<std::size_t>(place)) = static_cast<std::int32_t>(number);
    for (int dim = shape.rank() - 1; dim >= 0 && ++at[dim] == piece.box.extent[dim]; --dim) {
      at[dim] = 0;
    }
  }
}

/// What Weir says that the engine keeps.
inline NumberedRank numbered_rank(const Model& model, const RankLayout& layout) {
  const std::vector<std::int64_t> first = first_numbers(model);
  NumberedRank tensors;
  for (const LocalTensor& tensor : layout.tensors) {
    NumberedTensor& local = tensors[tensor.name];
    local = {.shape = tensor.shape, .elements = {}, .type = std::string(name_of(tensor.type))};
    const auto is_one = [&](const LocalPiece& piece) {
      return is_numbered(model, model.tensors[piece.tensor]);
    };
    if (!std::ranges::all_of(tensor.pieces, is_one)) continue;
    std::size_t count = 1;
    for (const std::int64_t extent : tensor.shape) count *= static_cast<std::size_t>(extent);
    local.elements.resize(count);
    for (const LocalPiece& piece : tensor.pieces) {
      number_piece(piece, model.tensors[piece.tensor].shape, first[piece.tensor], local);
    }
  }
  return tensors;
}

/// "model.norm.weight[3]" for the number of a canonical element.
inline std::string element_named(const Model& model, std::int64_t number) {
  if (number == 0) return "padding";
  const std::vector<std::int64_t> first = first_numbers(model);
  const auto after = std::ranges::upper_bound(first, number);
  const auto index = static_cast<std::size_t>(after - first.begin()) - 1;
  return model.tensors[index].name + "[" + std::to_string(number - first[index]) + "]";
}

inline std::string text_of_shape(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  }
  return text.empty() ? "scalar" : text;
}

/// Every difference, one line each; of a tensor's elements only the first.
inline std::vector<std::string> differences(const Model& model, const NumberedRank& engine,
                                            const NumberedRank& weir) {
  std::vector<std::string> lines;
  for (const auto& [name, theirs] : engine) {
    const auto found = weir.find(name);
    if (found == weir.end()) {
      lines.push_back(name + ": only the engine has it");
      continue;
    }
    const NumberedTensor& ours = found->second;
    if (ours.shape != theirs.shape) {
      lines.push_back(name + ": " + text_of_shape(theirs.shape) + " in the engine, " +
                      text_of_shape(ours.shape) + " in Weir");
      continue;
    }
    if (!theirs.type.empty() && ours.type != theirs.type) {
      lines.push_back(name + ": " + theirs.type + " in the engine, " + ours.type + " in Weir");
    }
    const auto [mine, other] = std::ranges::mismatch(ours.elements, theirs.elements);
    if (mine == ours.elements.end()) continue;
    lines.push_back(name + "[" + std::to_string(mine - ours.elements.begin()) +
                    "]: " + element_named(model, *other) + " in the engine, " +
                    element_named(model, *mine) + " in Weir");
  }
  for (const auto& [name, ours] : weir) {
    if (!engine.contains(name)) lines.push_back(name + ": only Weir has it");
  }
  return lines;
}

/// The model of a case: what Weir makes of the engine's configuration, or for a family that it
/// doesn't know (which `hf` and `fsdp2` need not) the tensors that Transformers saves.
/// Errors: those of reading the configuration.
inline Result<Model> model_of(const GoldenCase& golden) {
  auto config = read_model_config(golden.folder);
  if (!config) return failure(config);
  if (!config->has_value() || (*config)->family.empty()) {
    return Model{.config = {}, .tensors = golden.canonical, .aliases = {}};
  }
  return model_of(**config);
}

}  // namespace weir
