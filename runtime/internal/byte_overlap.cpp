#include "runtime/internal/byte_overlap.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <tuple>

#include "runtime/internal/quoted.hpp"

namespace weir::internal {
namespace {

/// An unknown whole number between `low` and `high`, times `stride`.
struct Term {
  std::int64_t stride = 0;
  std::int64_t low = 0;
  std::int64_t high = 0;
};

std::int64_t floor_div(std::int64_t a, std::int64_t b) noexcept {
  return a / b - (a % b < 0 ? 1 : 0);
}
std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept {
  return a / b + (a % b > 0 ? 1 : 0);
}

/// Whether a sum of terms can fall into a window of numbers. Strides are positive.
class SumSearch {
 public:
  explicit SumSearch(std::uint64_t& steps_left) : steps_left_(steps_left) {}

  void add(const Term& term) noexcept { terms_[count_++] = term; }

  /// Call once, after all terms are there.
  std::optional<bool> reaches(std::int64_t low, std::int64_t high) {
    std::sort(terms_.begin(), terms_.begin() + count_,
              [](const Term& a, const Term& b) { return a.stride > b.stride; });
    for (int i = count_ - 1; i >= 0; --i) {
      const Term& term = terms_[i];
      rest_[i] = {std::gcd(term.stride, rest_[i + 1].divisor),
                  rest_[i + 1].low + term.stride * term.low,
                  rest_[i + 1].high + term.stride * term.high};
    }
    const bool found = search(0, low, high);
    if (steps_left_ == 0) return std::nullopt;
    return found;
  }

 private:
  /// What the terms from one on can add up to: multiples of `divisor` between `low` and `high`.
  struct Rest {
    std::int64_t divisor = 0;
    std::int64_t low = 0;
    std::int64_t high = 0;
  };

  bool search(int at, std::int64_t low, std::int64_t high) {
    if (steps_left_ == 0 || --steps_left_ == 0) return false;
    const Rest& rest = rest_[at];
    low = std::max(low, rest.low);
    high = std::min(high, rest.high);
    if (low > high) return false;
    if (at == count_) return true;  // The empty sum, 0, lies in the window.
    if (ceil_div(low, rest.divisor) > floor_div(high, rest.divisor)) return false;
    const Term& term = terms_[at];
    const Rest& after = rest_[at + 1];
    const std::int64_t first = std::max(term.low, ceil_div(low - after.high, term.stride));
    const std::int64_t last = std::min(term.high, floor_div(high - after.low, term.stride));
    for (std::int64_t value = first; value <= last && steps_left_ > 0; ++value) {
      if (search(at + 1, low - value * term.stride, high - value * term.stride)) return true;
    }
    return false;
  }

  std::array<Term, 2 * rank_max> terms_{};
  std::array<Rest, 2 * rank_max + 1> rest_{};
  int count_ = 0;
  std::uint64_t& steps_left_;
};

/// Whether strides nest: each step is at least as long as all that smaller strides reach. Then no
/// byte comes twice.
bool nests(const ByteLattice& lattice) {
  std::array<int, rank_max> order{};  // Dimensions by rising stride.
  int count = 0;
  for (int dim = 0; dim < lattice.extent.rank(); ++dim) {
    if (lattice.extent[dim] == 1) continue;
    int place = count++;
    for (; place > 0 && lattice.stride[order[place - 1]] > lattice.stride[dim]; --place) {
      order[place] = order[place - 1];
    }
    order[place] = dim;
  }
  std::int64_t reach = lattice.size;
  for (int i = 0; i < count; ++i) {
    if (lattice.stride[order[i]] < reach) return false;
    reach += lattice.stride[order[i]] * (lattice.extent[order[i]] - 1);
  }
  return true;
}

ByteLattice lattice_of(const Manifest& manifest, std::uint32_t index) {
  const Piece& piece = manifest.pieces[index];
  return {static_cast<std::int64_t>(piece.offset),
          static_cast<std::int64_t>(size_of(manifest.tensors[piece.tensor].type)), piece.box.extent,
          piece.stride};
}

std::string text_of_piece(const Manifest& manifest, std::uint32_t index) {
  const Piece& piece = manifest.pieces[index];
  return text_of(piece.box) + " of " + quoted(manifest.tensors[piece.tensor].name);
}

tl::unexpected<Error> too_irregular(const Manifest& manifest, std::uint32_t index) {
  return failure(ErrorCode::refused,
                 text_of(manifest.shard) + ": the strides of " + text_of_piece(manifest, index) +
                     " interleave with others too irregularly to prove that no byte is written "
                     "twice: use strides that are multiples of each other");
}

/// A piece and the range of bytes that it lies in.
struct Span {
  std::uint32_t piece = 0;
  std::uint32_t region = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Compares each piece with those before it that reach past its first byte.
Result<void> check_disjoint(const Manifest& manifest, std::span<const Span> spans,
                            std::uint64_t& steps_left) {
  std::vector<Span> open;  // All that reach past the first byte of the span at hand.
  for (const Span& span : spans) {
    std::erase_if(open, [&](const Span& other) {
      return other.region != span.region || other.end <= span.begin;
    });
    for (const Span& other : open) {
      const std::optional<bool> shared = share_bytes(lattice_of(manifest, other.piece),
                                                     lattice_of(manifest, span.piece), steps_left);
      if (!shared) return too_irregular(manifest, span.piece);
      if (!*shared) continue;
      return failure(ErrorCode::invalid,
                     "overlap: " + text_of_piece(manifest, other.piece) + " and " +
                         text_of_piece(manifest, span.piece) + " claim the same bytes of region " +
                         std::to_string(span.region) + " of " + text_of(manifest.shard) +
                         ": correct the offset or strides of one of them");
    }
    open.push_back(span);
  }
  return {};
}

}  // namespace

std::int64_t ByteLattice::end() const noexcept {
  std::int64_t end = offset + size;
  for (int dim = 0; dim < extent.rank(); ++dim) end += (extent[dim] - 1) * stride[dim];
  return end;
}

std::optional<bool> share_bytes(const ByteLattice& a, const ByteLattice& b,
                                std::uint64_t& steps_left) {
  // Bytes meet where 0 <= (byte of b) - (byte of a) < a.size or the other way round. A stride that
  // both have becomes one term: the difference of their indices.
  SumSearch sums(steps_left);
  std::array<bool, rank_max> joined{};
  for (int i = 0; i < a.extent.rank(); ++i) {
    if (a.extent[i] == 1) continue;
    Term term{a.stride[i], -(a.extent[i] - 1), 0};
    for (int j = 0; j < b.extent.rank(); ++j) {
      if (b.stride[j] != a.stride[i] || b.extent[j] == 1 || joined[j]) continue;
      term.high = b.extent[j] - 1;
      joined[j] = true;
      break;
    }
    sums.add(term);
  }
  for (int j = 0; j < b.extent.rank(); ++j) {
    if (b.extent[j] > 1 && !joined[j]) sums.add({b.stride[j], 0, b.extent[j] - 1});
  }
  const std::int64_t apart = b.offset - a.offset;
  return sums.reaches(-(b.size - 1) - apart, a.size - 1 - apart);
}

std::optional<bool> repeats_bytes(const ByteLattice& lattice, std::uint64_t& steps_left) {
  if (nests(lattice)) return false;
  // Two different indices whose bytes meet. Of their differences, take the first that is not zero:
  // it may be taken as positive, those before it are zero, those after it are free.
  const int rank = lattice.extent.rank();
  for (int first = 0; first < rank; ++first) {
    if (lattice.extent[first] == 1) continue;
    SumSearch sums(steps_left);
    sums.add({lattice.stride[first], 1, lattice.extent[first] - 1});
    for (int dim = first + 1; dim < rank; ++dim) {
      const std::int64_t most = lattice.extent[dim] - 1;
      if (most > 0) sums.add({lattice.stride[dim], -most, most});
    }
    const std::optional<bool> found = sums.reaches(-(lattice.size - 1), lattice.size - 1);
    if (!found || *found) return found;
  }
  return false;
}

Result<std::vector<std::uint32_t>> disjoint_order(const Manifest& manifest,
                                                  std::uint64_t steps_max) {
  std::uint64_t steps_left = steps_max;
  std::vector<Span> spans;
  spans.reserve(manifest.pieces.size());
  for (std::uint32_t i = 0; i < manifest.pieces.size(); ++i) {
    const ByteLattice lattice = lattice_of(manifest, i);
    const std::optional<bool> repeats = repeats_bytes(lattice, steps_left);
    if (!repeats) return too_irregular(manifest, i);
    if (*repeats) {
      return failure(ErrorCode::invalid,
                     "overlap: " + text_of_piece(manifest, i) + " claims bytes of region " +
                         std::to_string(manifest.pieces[i].region) + " of " +
                         text_of(manifest.shard) + " twice: correct its strides");
    }
    spans.push_back({i, manifest.pieces[i].region, lattice.offset, lattice.end()});
  }
  const auto key = [&](const Span& span) {
    return std::tie(span.region, span.begin, span.end, manifest.pieces[span.piece].box);
  };
  const auto before = [&](const Span& a, const Span& b) { return key(a) < key(b); };
  if (!std::is_sorted(spans.begin(), spans.end(), before)) {
    std::sort(spans.begin(), spans.end(), before);
  }
  if (auto good = check_disjoint(manifest, spans, steps_left); !good) return failure(good);
  std::vector<std::uint32_t> order;
  order.reserve(spans.size());
  for (const Span& span : spans) order.push_back(span.piece);
  return order;
}

}  // namespace weir::internal
