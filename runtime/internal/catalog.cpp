#include "runtime/internal/catalog.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <unordered_map>

#include "runtime/internal/quoted.hpp"
#include "runtime/planner.hpp"

namespace weir::internal {
namespace {

constexpr std::size_t names_shown_max = 3;
constexpr TensorNumber none = std::numeric_limits<TensorNumber>::max();

tl::unexpected<Error> invalid(const std::string& text) {
  return failure(ErrorCode::invalid, text);
}

/// "'a', 'b', 'c' and 4 more"
std::string text_of_names(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), names_shown_max); ++i) {
    text += (i > 0 ? ", " : "") + quoted(names[i]);
  }
  if (names.size() <= names_shown_max) return text;
  return text + " and " + std::to_string(names.size() - names_shown_max) + " more";
}

/// Whether both are plain, or encoded in one way.
bool equal(const Encoding* a, const Encoding* b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

std::string text_of(const Encoding* encoding) {
  return encoding == nullptr ? "plain values" : text_of(*encoding);
}

/// A pattern and what its shards list, side by side.
struct Party {
  const Pattern* pattern;
  PatternTensors* tensors;
};

class CatalogMaker {
 public:
  explicit CatalogMaker(const Roster& roster) : roster_(roster) {
    catalog_.trainers.resize(roster.trainers.size());
    catalog_.rollouts.resize(roster.rollouts.size());
    for (std::size_t i = 0; i < roster.trainers.size(); ++i) {
      parties_.push_back({&roster.trainers[i], &catalog_.trainers[i]});
    }
    for (std::size_t i = 0; i < roster.rollouts.size(); ++i) {
      parties_.push_back({&roster.rollouts[i], &catalog_.rollouts[i]});
    }
  }

  Result<Catalog> make() {
    for (const Party& party : parties_) {
      if (auto good = number_tensors(party); !good) return failure(good);
    }
    for (const Party& party : parties_) number_aliases(party);
    for (const Party& party : parties_) {
      party.tensors->listed.resize(catalog_.names.size());
      party.tensors->types.resize(catalog_.names.size());
      party.tensors->encodings.resize(catalog_.names.size());
    }
    sort_by_name();
    for (const Party& party : parties_) {
      if (auto good = check_aliases(party); !good) return failure(good);
      if (auto good = check_inventory(party); !good) return failure(good);
    }
    for (TensorNumber tensor = 0; tensor < catalog_.names.size(); ++tensor) {
      if (auto good = check_shapes(tensor, tensor); !good) return failure(good);
    }
    join_aliases();
    find_trainers_tensors();
    for (const Party& party : parties_) {
      if (auto good = check_ties(party); !good) return failure(good);
    }
    if (auto good = find_sources(); !good) return failure(good);
    return std::move(catalog_);
  }

 private:
  /// Shards list tensors in much the same order, so that most come behind the one that they came
  /// behind before, and need not be looked up.
  TensorNumber number_of(std::string_view name) {
    if (last_ != none && next_[last_] != none && catalog_.names[next_[last_]] == name) {
      return last_ = next_[last_];
    }
    const auto [place, is_new] =
        numbers_.try_emplace(name, static_cast<TensorNumber>(catalog_.names.size()));
    if (is_new) {
      catalog_.names.push_back(name);
      next_.push_back(none);
    }
    if (last_ != none) next_[last_] = place->second;
    return last_ = place->second;
  }

  [[nodiscard]] const Manifest& model_of(const Party& party, std::uint32_t rank) const {
    return roster_.model_of(*party.pattern, rank);
  }
  [[nodiscard]] std::string replica_of(const Party& party) const {
    return text_of_replica(model_of(party, 0).shard);
  }
  [[nodiscard]] bool is_trainer(const Party& party) const {
    return model_of(party, 0).shard.side == Side::trainer;
  }

  /// The first shard of that pattern that lists the tensor, with that type if one is given.
  [[nodiscard]] std::string shard_with(const Party& party, TensorNumber tensor,
                                       std::optional<ElementType> type = {}) const {
    for (std::uint32_t rank = 0; rank < party.pattern->ranks; ++rank) {
      const auto& numbers = party.tensors->numbers[rank];
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const Manifest& manifest = model_of(party, rank);
        if (numbers[i] == tensor && (!type || manifest.tensors[i].type == *type)) {
          return text_of(manifest.shard);
        }
      }
    }
    return replica_of(party);
  }

  Result<void> number_tensors(const Party& party) {
    PatternTensors& tensors = *party.tensors;
    tensors.numbers.resize(party.pattern->ranks);
    for (std::uint32_t rank = 0; rank < party.pattern->ranks; ++rank) {
      const Manifest& manifest = model_of(party, rank);
      tensors.numbers[rank].reserve(manifest.tensors.size());
      for (const Tensor& tensor : manifest.tensors) {
        const TensorNumber number = number_of(tensor.name);
        tensors.numbers[rank].push_back(number);
        if (tensors.listed.size() < catalog_.names.size()) {
          tensors.listed.resize(catalog_.names.size());
          tensors.types.resize(catalog_.names.size());
          tensors.encodings.resize(catalog_.names.size());
        }
        const Tensor*& first = tensors.listed[number];
        const Encoding* encoding = encoding_of(manifest, tensor);
        if (first == nullptr) {
          first = &tensor;
          tensors.encodings[number] = encoding;
        }
        if (!equal(tensors.encodings[number], encoding)) {
          return invalid("shards of " + replica_of(party) + " disagree on " + quoted(tensor.name) +
                         ", which is " + text_of(tensors.encodings[number]) + " at one and " +
                         text_of(encoding) + " at " + text_of(manifest.shard) +
                         ": make them agree");
        }
        tensors.types[number] |=
            static_cast<std::uint16_t>(1U << static_cast<unsigned>(tensor.type));
        if (first->kind != tensor.kind) {
          return invalid("shards of " + replica_of(party) + " disagree whether " +
                         quoted(tensor.name) + " is a parameter or a buffer: make them agree");
        }
        if (first->shape != tensor.shape) {
          return invalid("shape mismatch: " + quoted(tensor.name) + " is " + text_of(tensor.shape) +
                         " at " + text_of(manifest.shard) + ", but " + text_of(first->shape) +
                         " at " + shard_with(party, number) +
                         ": state the whole tensor's shape on both");
        }
      }
    }
    return {};
  }

  void number_aliases(const Party& party) {
    for (const Alias& alias : model_of(party, 0).aliases) {
      number_of(alias.name);
      number_of(alias.of);
    }
  }

  void sort_by_name() {
    by_name_.resize(catalog_.names.size());
    std::iota(by_name_.begin(), by_name_.end(), 0);
    std::sort(by_name_.begin(), by_name_.end(), [&](TensorNumber a, TensorNumber b) {
      return catalog_.names[a] < catalog_.names[b];
    });
  }

  Result<void> check_aliases(const Party& party) {
    for (const Alias& alias : model_of(party, 0).aliases) {
      if (party.tensors->has(number_of(alias.name))) {
        return invalid(quoted(alias.name) + " is an alias and a tensor at once in " +
                       replica_of(party) + ": leave one of them out");
      }
      if (!party.tensors->has(number_of(alias.of))) {
        return invalid("alias " + quoted(alias.name) + " of " + replica_of(party) + " is of " +
                       quoted(alias.of) + ", which none of its shards lists: correct the alias");
      }
    }
    return {};
  }

  Result<void> check_inventory(const Party& party) {
    std::vector<const Tensor*> listed;
    for (const TensorNumber tensor : by_name_) {
      if (party.tensors->has(tensor)) listed.push_back(party.tensors->listed[tensor]);
    }
    const std::size_t count = listed.size();
    const Inventory& stated = model_of(party, 0).inventory;
    if (inventory_of(std::move(listed)) == stated) return {};
    return invalid(replica_of(party) + " does not hold its inventory: its shards list " +
                   std::to_string(count) + " of " + std::to_string(stated.tensor_count) +
                   " tensors" + differences(party) +
                   ": list every tensor at some shard, with the shape and kind it was counted by");
  }

  /// What the other side (or, without one that helps, another pattern) lists and this one does not.
  [[nodiscard]] std::string differences(const Party& party) const {
    const Party* other = nullptr;
    for (const Party& candidate : parties_) {
      if (candidate.pattern == party.pattern) continue;
      if (other == nullptr || is_trainer(candidate) != is_trainer(party)) other = &candidate;
    }
    std::vector<std::string_view> missing;
    std::vector<std::string_view> extra;
    for (TensorNumber tensor = 0; tensor < catalog_.names.size(); ++tensor) {
      const bool here = party.tensors->has(tensor);
      const bool there = other->tensors->has(tensor);
      if (there && !here) missing.push_back(catalog_.names[tensor]);
      if (here && !there) extra.push_back(catalog_.names[tensor]);
    }
    std::string text;
    if (!missing.empty()) {
      text += "; " + replica_of(*other) + " also lists " + text_of_names(missing);
    }
    if (!extra.empty()) {
      text += "; " + replica_of(*other) + " does not list " + text_of_names(extra);
    }
    return text;
  }

  /// Whether all that list `tensor` or `other`, two names of one tensor, see one shape.
  Result<void> check_shapes(TensorNumber tensor, TensorNumber other) {
    const Party* first = nullptr;
    const Tensor* first_listed = nullptr;
    for (const TensorNumber number : {tensor, other}) {
      for (const Party& party : parties_) {
        const Tensor* listed = party.tensors->listed[number];
        if (listed == nullptr) continue;
        if (first == nullptr) {
          first = &party;
          first_listed = listed;
        }
        if (listed->shape == first_listed->shape) continue;
        return invalid("shape mismatch: " + quoted(first_listed->name) + " is " +
                       text_of(first_listed->shape) + " at " + shard_with(*first, tensor) +
                       ", but " + quoted(listed->name) + " is " + text_of(listed->shape) + " at " +
                       shard_with(party, number) + ": use one model on both sides");
      }
    }
    return {};
  }

  /// Joins all names that some alias ties: each points to another of its group, the smallest number
  /// to itself.
  void join_aliases() {
    group_.resize(catalog_.names.size());
    std::iota(group_.begin(), group_.end(), 0);
    for (const Party& party : parties_) {
      for (const Alias& alias : model_of(party, 0).aliases) {
        const TensorNumber a = group_of(number_of(alias.name));
        const TensorNumber b = group_of(number_of(alias.of));
        group_[std::max(a, b)] = std::min(a, b);
      }
    }
  }

  /// Halves the way as it goes, so that long chains of aliases stay cheap.
  [[nodiscard]] TensorNumber group_of(TensorNumber tensor) {
    while (group_[tensor] != tensor) tensor = group_[tensor] = group_[group_[tensor]];
    return tensor;
  }

  /// A replica must not hold two tensors of its own that others hold to be one.
  Result<void> check_ties(const Party& party) {
    std::vector<TensorNumber> holder(group_.size(), none);
    for (TensorNumber tensor = 0; tensor < group_.size(); ++tensor) {
      if (!party.tensors->has(tensor)) continue;
      TensorNumber& first = holder[group_of(tensor)];
      if (first == none) {
        first = tensor;
        continue;
      }
      return invalid(quoted(catalog_.names[first]) + " and " + quoted(catalog_.names[tensor]) +
                     " are two tensors at " + replica_of(party) + ", but one with two names at " +
                     tying_replica(group_of(tensor)) +
                     ": make tie_word_embeddings agree on both sides");
    }
    return {};
  }

  [[nodiscard]] std::string tying_replica(TensorNumber group) {
    for (const Party& party : parties_) {
      for (const Alias& alias : model_of(party, 0).aliases) {
        if (group_of(numbers_.at(alias.name)) == group) return replica_of(party);
      }
    }
    return "another replica";
  }

  Result<void> find_sources() {
    catalog_.source_of.resize(catalog_.names.size());
    std::iota(catalog_.source_of.begin(), catalog_.source_of.end(), 0);
    for (const Party& party : parties_) {
      if (is_trainer(party)) continue;
      for (TensorNumber tensor = 0; tensor < catalog_.names.size(); ++tensor) {
        if (!party.tensors->has(tensor)) continue;
        const TensorNumber source =
            at_trainers_[tensor] ? tensor : source_of_group_[group_of(tensor)];
        if (source == none) return invalid(unknown_name(party, tensor));
        catalog_.source_of[tensor] = source;
        if (source != tensor) {
          if (auto good = check_shapes(tensor, source); !good) return good;
        }
        if (auto good = check_types(party, tensor, source); !good) return good;
      }
    }
    return {};
  }

  /// For each group, the trainers' tensor in it; the first by name where patterns differ in which
  /// of its names is the tensor.
  void find_trainers_tensors() {
    at_trainers_.resize(catalog_.names.size());
    source_of_group_.resize(catalog_.names.size(), none);
    for (TensorNumber tensor = 0; tensor < catalog_.names.size(); ++tensor) {
      for (const PatternTensors& tensors : catalog_.trainers) {
        if (tensors.has(tensor)) at_trainers_[tensor] = true;
      }
      if (!at_trainers_[tensor]) continue;
      TensorNumber& source = source_of_group_[group_of(tensor)];
      if (source == none || catalog_.names[tensor] < catalog_.names[source]) source = tensor;
    }
  }

  [[nodiscard]] std::string unknown_name(const Party& party, TensorNumber tensor) const {
    const std::string_view name = catalog_.names[tensor];
    std::string hint;
    for (TensorNumber other = 0; other < catalog_.names.size(); ++other) {
      const std::string_view known = catalog_.names[other];
      if (other != tensor && at_trainers_[other] &&
          (known.ends_with(name) || name.ends_with(known))) {
        hint = " (they have " + quoted(known) + ")";
      }
    }
    return "unknown name: " + shard_with(party, tensor) + " needs " + quoted(name) +
           ", which no trainer has" + hint +
           ": use the checkpoint's names on both sides, or leave it out of the rollouts";
  }

  /// Whether every type that trainers keep the source in can become every type that this pattern
  /// wants the tensor in.
  Result<void> check_types(const Party& party, TensorNumber tensor, TensorNumber source) {
    const unsigned wanted = party.tensors->types[tensor];
    for (const Party& trainer : parties_) {
      if (!is_trainer(trainer) || !trainer.tensors->has(source)) continue;
      const Encoding* needed = party.tensors->encodings[tensor];
      const Encoding* found = trainer.tensors->encodings[source];
      if (!equal(needed, found)) {
        return invalid("encoding mismatch: " + shard_with(party, tensor) + " needs " +
                       quoted(catalog_.names[tensor]) + " " + text_of(needed) + ", but " +
                       shard_with(trainer, source) + " has it " + text_of(found) +
                       ": convert it on one side, as runtime/conversion.hpp says");
      }
      const unsigned kept = trainer.tensors->types[source];
      if (kept == wanted && std::has_single_bit(kept)) continue;
      for (int from = 0; from < element_type_count; ++from) {
        for (int to = 0; to < element_type_count; ++to) {
          const auto source_type = static_cast<ElementType>(from);
          const auto target_type = static_cast<ElementType>(to);
          if ((kept >> from & 1U) == 0 || (wanted >> to & 1U) == 0) continue;
          if (convertible(source_type, target_type)) continue;
          return invalid("type mismatch: " + shard_with(party, tensor, target_type) + " needs " +
                         quoted(catalog_.names[tensor]) + " as " +
                         std::string(name_of(target_type)) + ", but " +
                         shard_with(trainer, source, source_type) + " has it as " +
                         std::string(name_of(source_type)) +
                         ": keep one type on both sides (only f32, bf16 and f16 are converted)");
        }
      }
    }
    return {};
  }

  const Roster& roster_;
  Catalog catalog_;
  std::vector<Party> parties_;
  std::unordered_map<std::string_view, TensorNumber> numbers_;
  std::vector<TensorNumber> next_;  ///< By number: the one numbered behind it last.
  TensorNumber last_ = none;        ///< The one numbered last.
  std::vector<TensorNumber> by_name_;
  std::vector<TensorNumber> group_;
  std::vector<bool> at_trainers_;
  std::vector<TensorNumber> source_of_group_;
};

}  // namespace

Result<Catalog> make_catalog(const Roster& roster) {
  return CatalogMaker(roster).make();
}

}  // namespace weir::internal
