#pragma once
// Faults that production code proposes itself, at the places where they matter most. Simulated
// worlds say when one happens; nobody else ever does. (The word and the idea are FoundationDB's.)

#include <functional>
#include <string_view>

namespace weir {

/// Asked by the code at a place of that name; true: go wrong now. An empty one is never asked.
/// Threading: called from the threads of those who ask.
using Buggify = std::function<bool(std::string_view place)>;

inline bool strikes(const Buggify& buggify, std::string_view place) {
  return buggify && buggify(place);
}

}  // namespace weir
