#pragma once
// Two ways to write a layout may mean the same ("tp=2" and "tp=2,pp=1"): what counts is what the
// ranks keep.

#include "adapters/layouts/layout.hpp"
#include "adapters/model/model.hpp"

namespace weir {

/// Whether every rank keeps the same bytes under the same names in both; false where the model
/// does not fit one of them.
bool same_layout(const Model& model, const LayoutSpec& a, const LayoutSpec& b);

}  // namespace weir
