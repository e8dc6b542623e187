#include "runtime/conversion_sides.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "runtime/internal/box_cut.hpp"
#include "runtime/internal/quoted.hpp"

namespace weir {
namespace {

using internal::quoted;

/// How one side keeps a tensor, wherever it keeps it.
struct Form {
  ElementType type = ElementType::bf16;
  const Encoding* encoding = nullptr;
  bool one_type = true;  ///< Whether all shards keep it as that type.
};

bool equal(const Encoding* a, const Encoding* b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}
bool scaled(const Encoding* encoding) {
  return encoding != nullptr && encoding->kind == Encoding::Kind::scaled;
}
std::string text_of(const Encoding* encoding) {
  return encoding == nullptr ? "plain values" : text_of(*encoding);
}

using Forms = std::unordered_map<std::string_view, Form>;

Result<Forms> forms_of(std::span<const Manifest> manifests) {
  Forms forms;
  for (const Manifest& manifest : manifests) {
    if (auto good = check(manifest); !good) return failure(good);
    for (const Tensor& tensor : manifest.tensors) {
      const Encoding* encoding = encoding_of(manifest, tensor);
      const auto [place, first] = forms.try_emplace(tensor.name, Form{tensor.type, encoding, true});
      Form& form = place->second;
      if (first) continue;
      form.one_type = form.one_type && form.type == tensor.type;
      if (equal(form.encoding, encoding)) continue;
      return failure(ErrorCode::invalid, "shards disagree on " + quoted(tensor.name) +
                                             ", which is " + text_of(form.encoding) +
                                             " at one and " + text_of(encoding) + " at " +
                                             text_of(manifest.shard) + ": make them agree");
    }
  }
  return forms;
}

enum class At : std::uint8_t { copying, source, target };

/// Where a tensor whose blocks no source shard cuts is converted.
Result<At> side_of(std::string_view name, const Form& live, const Form& engine) {
  if (equal(live.encoding, engine.encoding)) {
    const bool fewer = live.type != engine.type && live.one_type && engine.one_type &&
                       size_of(engine.type) <= size_of(live.type);
    return fewer ? At::source : At::copying;
  }
  if (live.encoding != nullptr && engine.encoding != nullptr) {
    return failure(ErrorCode::invalid, quoted(name) + " is trained " + text_of(live.encoding) +
                                           " and needed " + text_of(engine.encoding) +
                                           ": use one encoding, or none where it is trained");
  }
  return scaled(live.encoding) ? At::target : At::source;
}

/// A manifest's pieces by tensor.
std::vector<std::vector<Piece>> pieces_by_tensor(const Manifest& manifest) {
  std::vector<std::vector<Piece>> pieces(manifest.tensors.size());
  for (const Piece& piece : manifest.pieces) pieces[piece.tensor].push_back(piece);
  return pieces;
}

/// What is converted where, by name. Borrows the manifests.
class Sides {
 public:
  static Result<Sides> choose(std::span<const Manifest> live, std::span<const Manifest> engines) {
    Sides sides;
    auto trained = forms_of(live);
    if (!trained) return failure(trained);
    auto needed = forms_of(engines);
    if (!needed) return failure(needed);
    sides.trained_ = std::move(*trained);
    sides.needed_ = std::move(*needed);
    for (const auto& [name, form] : sides.needed_) {
      const auto found = sides.trained_.find(name);
      // Without it there: scales that are made, or a name that the plan will be refused for.
      if (found == sides.trained_.end()) continue;
      const auto side = side_of(name, found->second, form);
      if (!side) return failure(side);
      if (*side != At::copying) sides.at_.emplace(name, *side);
    }
    for (const Manifest& manifest : live) sides.move_what_is_cut(manifest);
    return sides;
  }

  [[nodiscard]] std::uint64_t count(At side) const {
    return static_cast<std::uint64_t>(std::count_if(
        at_.begin(), at_.end(), [side](const auto& one) { return one.second == side; }));
  }
  [[nodiscard]] bool converts(std::string_view name, At side) const {
    const auto found = at_.find(name);
    return found != at_.end() && found->second == side;
  }
  [[nodiscard]] const Form& trained(std::string_view name) const { return trained_.at(name); }
  [[nodiscard]] const Form& needed(std::string_view name) const { return needed_.at(name); }

 private:
  /// Its scale can't be known where some shard holds only a part of a block.
  void move_what_is_cut(const Manifest& manifest) {
    const auto pieces = pieces_by_tensor(manifest);
    for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
      const Tensor& tensor = manifest.tensors[i];
      if (!converts(tensor.name, At::source) || !scaled(needed(tensor.name).encoding)) continue;
      const Encoding& encoding = *needed(tensor.name).encoding;
      for (const Piece& piece : pieces[i]) {
        const Box blocks = blocks_of(encoding, tensor.shape, piece.box);
        if (internal::uncovered(elements_of(encoding, tensor.shape, blocks), pieces[i])) {
          at_[tensor.name] = At::target;
        }
      }
    }
  }

  Forms trained_;
  Forms needed_;
  std::unordered_map<std::string_view, At> at_;
};

/// One shard's manifest with some tensors in the other side's form.
class Reshaper {
 public:
  /// `side` is the one whose manifest `own` is.
  Reshaper(const Sides& sides, const Manifest& own, At side)
      : sides_(sides), own_(own), side_(side), pieces_(pieces_by_tensor(own)) {}

  Manifest make() {
    made_.shard = own_.shard;
    made_.replica_ranks = own_.replica_ranks;
    made_.aliases = own_.aliases;
    made_.regions = {
        {own_.regions.empty() ? RegionKind::host_private : own_.regions[0].kind, 0, {}}};
    for (const Tensor& tensor : own_.tensors) {
      if (!changes(tensor)) continue;
      const Encoding* encoding = own_form(tensor).encoding;
      if (scaled(encoding)) scales_.emplace(tensor.name + encoding->scales_suffix, &tensor);
    }
    for (const Tensor& tensor : own_.tensors) places_.push_back(add_tensor(tensor));
    add_pieces();
    for (std::size_t i = 0; i < own_.tensors.size(); ++i) add_scales(own_.tensors[i], places_[i]);
    made_.regions[0].bytes = std::max<std::uint64_t>(made_.regions[0].bytes, region_bytes_min);
    return std::move(made_);
  }

 private:
  /// A region can't be empty.
  static constexpr std::uint64_t region_bytes_min = 256;
  static constexpr std::uint32_t left_out = ~std::uint32_t{0};

  [[nodiscard]] bool changes(const Tensor& tensor) const {
    return sides_.converts(tensor.name, side_);
  }
  [[nodiscard]] const Form& own_form(const Tensor& tensor) const {
    return side_ == At::source ? sides_.trained(tensor.name) : sides_.needed(tensor.name);
  }
  [[nodiscard]] const Form& other_form(const Tensor& tensor) const {
    return side_ == At::source ? sides_.needed(tensor.name) : sides_.trained(tensor.name);
  }

  std::uint32_t add_tensor(const Tensor& tensor) {
    if (scales_.contains(tensor.name)) return left_out;
    const Encoding* encoding = encoding_of(own_, tensor);
    Tensor made = tensor;
    if (changes(tensor)) {
      made.type = other_form(tensor).type;
      encoding = other_form(tensor).encoding;
    }
    made.encoding = encoding == nullptr ? 0 : number_of(*encoding);
    made_.tensors.push_back(std::move(made));
    return static_cast<std::uint32_t>(made_.tensors.size() - 1);
  }

  std::uint32_t number_of(const Encoding& encoding) {
    auto& list = made_.encodings;
    const auto found = std::find(list.begin(), list.end(), encoding);
    const auto number = static_cast<std::uint32_t>(found - list.begin()) + 1;
    if (found == list.end()) list.push_back(encoding);
    return number;
  }

  /// In the order of the shard's own memory, so that what lies side by side there does here.
  void add_pieces() {
    std::vector<const Piece*> order;
    order.reserve(own_.pieces.size());
    for (const Piece& piece : own_.pieces) order.push_back(&piece);
    std::stable_sort(order.begin(), order.end(), [](const Piece* a, const Piece* b) {
      return std::pair(a->region, a->offset) < std::pair(b->region, b->offset);
    });
    boxes_.resize(made_.tensors.size());
    for (const Piece* piece : order) {
      const Tensor& tensor = own_.tensors[piece->tensor];
      const auto scales = scales_.find(tensor.name);
      if (scales != scales_.end()) {
        add_values_of(*scales->second, piece->box);
      } else if (changes(tensor) && scaled(own_form(tensor).encoding)) {
        add_values_of(tensor, blocks_of(*own_form(tensor).encoding, tensor.shape, piece->box));
      } else {
        add_piece(places_[piece->tensor], piece->box);
      }
    }
  }

  /// The values of those blocks, once: codes and scales are made of the same ones.
  void add_values_of(const Tensor& codes, const Box& blocks) {
    const auto index = static_cast<std::size_t>(&codes - own_.tensors.data());
    add_piece(places_[index], elements_of(*own_form(codes).encoding, codes.shape, blocks));
  }

  void add_scales(const Tensor& tensor, std::uint32_t place) {
    if (place == left_out || !changes(tensor) || !scaled(other_form(tensor).encoding)) return;
    const Encoding& encoding = *other_form(tensor).encoding;
    made_.tensors.push_back({tensor.name + encoding.scales_suffix, ElementType::f32,
                             scales_shape(encoding, tensor.shape), tensor.kind});
    boxes_.emplace_back();
    const auto scales = static_cast<std::uint32_t>(made_.tensors.size() - 1);
    for (const Piece& piece : pieces_[static_cast<std::size_t>(&tensor - own_.tensors.data())]) {
      add_piece(scales, blocks_of(encoding, tensor.shape, piece.box));
    }
  }

  void add_piece(std::uint32_t tensor, const Box& box) {
    if (!boxes_[tensor].insert(box).second) return;
    const auto size = static_cast<std::int64_t>(size_of(made_.tensors[tensor].type));
    const auto step = static_cast<std::uint64_t>(size);
    std::uint64_t& end = made_.regions[0].bytes;
    end = (end + step - 1) / step * step;
    made_.pieces.push_back({tensor, 0, end, box, dense_strides(box.extent, size)});
    end += static_cast<std::uint64_t>(element_count(box.extent)) * step;
  }

  const Sides& sides_;
  const Manifest& own_;
  At side_;
  std::vector<std::vector<Piece>> pieces_;
  /// Names of this shard's scales that the other side's form does without, and their codes.
  std::map<std::string, const Tensor*, std::less<>> scales_;
  std::vector<std::uint32_t> places_;  ///< By own tensor: its index in what is made.
  std::vector<std::set<Box>> boxes_;   ///< By tensor of what is made.
  Manifest made_;
};

/// All manifests of one side, with what is converted there in the other's form.
std::vector<Manifest> reshaped(const Sides& sides, std::span<const Manifest> own, At side) {
  std::vector<Manifest> made(own.begin(), own.end());
  if (sides.count(side) == 0) return made;
  // Replicas that state one inventory state one afterwards.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::map<std::string_view, const Tensor*>> all;
  const auto key = [](const Manifest& manifest) {
    return std::pair(manifest.inventory.digest.high, manifest.inventory.digest.low);
  };
  for (std::size_t i = 0; i < own.size(); ++i) {
    made[i] = Reshaper(sides, own[i], side).make();
    made[i].inventory = own[i].inventory;
  }
  for (const Manifest& manifest : made) {
    for (const Tensor& tensor : manifest.tensors) all[key(manifest)].emplace(tensor.name, &tensor);
  }
  std::map<std::pair<std::uint64_t, std::uint64_t>, Inventory> inventories;
  for (const auto& [old, tensors] : all) {
    std::vector<const Tensor*> listed;
    for (const auto& [name, tensor] : tensors) listed.push_back(tensor);
    inventories.emplace(old, inventory_of(std::move(listed)));
  }
  for (Manifest& manifest : made) {
    const auto found = inventories.find(key(manifest));
    if (found != inventories.end()) manifest.inventory = found->second;
  }
  return made;
}

}  // namespace

Result<ConversionSides> choose_conversion_sides(std::span<const Manifest> live,
                                                std::span<const Manifest> engines) {
  const auto sides = Sides::choose(live, engines);
  if (!sides) return failure(sides);
  return ConversionSides{.published = reshaped(*sides, live, At::source),
                         .received = reshaped(*sides, engines, At::target),
                         .tensors_at_source = sides->count(At::source),
                         .tensors_at_target = sides->count(At::target)};
}

}  // namespace weir
