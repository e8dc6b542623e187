#include "runtime/internal/coverage.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/internal/box_index.hpp"
#include "runtime/internal/quoted.hpp"

namespace weir::internal {
namespace {

/// What has been seen of a tensor so far: all of it up to `reach` along `dim`.
class Stretch {
 public:
  /// Lengthens the stretch by a box of the tensor that begins where it ends.
  void add(const Box& box, const Dims& shape) noexcept {
    if (reach_ == 0) dim_ = cut_dim(box, shape);
    if (shape.rank() == 0) reach_ = 1;
    if (shape.rank() == 0 || box.start[dim_] != reach_) return;
    for (int dim = 0; dim < shape.rank(); ++dim) {
      if (dim != dim_ && box.extent[dim] != shape[dim]) return;
    }
    reach_ += box.extent[dim_];
  }

  [[nodiscard]] bool whole(const Dims& shape) const noexcept {
    return reach_ > 0 && (shape.rank() == 0 || reach_ == shape[dim_]);
  }

 private:
  /// The first dimension that the box is cut along; the first of all where there is none.
  static int cut_dim(const Box& box, const Dims& shape) noexcept {
    int dim = 0;
    while (dim < shape.rank() && box.extent[dim] == shape[dim]) ++dim;
    return dim < shape.rank() ? dim : 0;
  }

  std::int64_t reach_ = 0;
  int dim_ = 0;
};

/// By tensor number: whether it is listed, has elements, and one pass does not show that it is
/// whole.
std::vector<bool> unproved(const Roster& roster, const Pattern& pattern,
                           const PatternTensors& tensors) {
  std::vector<Stretch> stretches(tensors.listed.size());
  for (std::uint32_t rank = 0; rank < pattern.ranks; ++rank) {
    for (const Piece& piece : roster.model_of(pattern, rank).pieces) {
      const TensorNumber tensor = tensors.numbers[rank][piece.tensor];
      stretches[tensor].add(piece.box, tensors.listed[tensor]->shape);
    }
  }
  std::vector<bool> wanted(stretches.size());
  for (TensorNumber tensor = 0; tensor < stretches.size(); ++tensor) {
    if (!tensors.has(tensor)) continue;
    const Dims& shape = tensors.listed[tensor]->shape;
    wanted[tensor] = !stretches[tensor].whole(shape) && element_count(shape) > 0;
  }
  return wanted;
}

}  // namespace

Result<void> check_whole(const Roster& roster, const Pattern& pattern, const Catalog& catalog,
                         const PatternTensors& tensors) {
  const std::vector<bool> wanted = unproved(roster, pattern, tensors);
  if (std::none_of(wanted.begin(), wanted.end(), [](bool tensor) { return tensor; })) return {};
  const BoxIndex index(roster, pattern, tensors, wanted);
  Cover cover;
  for (TensorNumber tensor = 0; tensor < wanted.size(); ++tensor) {
    if (!wanted[tensor]) continue;
    const Dims& shape = tensors.listed[tensor]->shape;
    const auto hole = index.cover(tensor, Box::whole(shape), cover);
    if (hole && !*hole) continue;
    const std::string name = quoted(catalog.names[tensor]);
    const std::string replica = text_of_replica(roster.model_of(pattern, 0).shard);
    if (!hole) {
      return failure(hole.error().code, name + " at " + replica + ": " + hole.error().text);
    }
    return failure(ErrorCode::invalid, "hole: no shard of " + replica + " has " + text_of(**hole) +
                                           " of " + name + " " + text_of(shape) +
                                           ": add the missing piece to one of its " +
                                           std::to_string(pattern.ranks) + " manifests");
  }
  return {};
}

}  // namespace weir::internal
