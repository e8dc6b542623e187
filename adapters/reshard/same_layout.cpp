#include <algorithm>

#include "adapters/reshard/internal/same_layout.hpp"

namespace weir {
namespace {

bool same_tensor(const LocalTensor& a, const LocalTensor& b) {
  return a.name == b.name && a.type == b.type && a.shape == b.shape && a.pieces == b.pieces;
}

}  // namespace

bool same_layout(const Model& model, const LayoutSpec& a, const LayoutSpec& b) {
  if (a == b) return true;
  const auto size_a = size_of(a);
  const auto size_b = size_of(b);
  if (!size_a || !size_b || size_a->ranks != size_b->ranks) return false;
  for (std::uint32_t rank = 0; rank < size_a->ranks; ++rank) {
    const auto layout_a = lay_out(model, a, rank);
    const auto layout_b = lay_out(model, b, rank);
    if (!layout_a || !layout_b) return false;
    if (!std::equal(layout_a->tensors.begin(), layout_a->tensors.end(), layout_b->tensors.begin(),
                    layout_b->tensors.end(), same_tensor)) {
      return false;
    }
  }
  return true;
}

}  // namespace weir
