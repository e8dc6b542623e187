#include "runtime/plan.hpp"

#include <array>
#include <cstddef>
#include <span>
#include <unordered_map>

namespace weir {
namespace {

void add(Digester& digester, const ShardId& shard) {
  digester.add(static_cast<std::uint64_t>(shard.side));
  digester.add(static_cast<std::uint64_t>(shard.replica));
  digester.add(static_cast<std::uint64_t>(shard.rank));
}

/// Numbers gathered first and digested at once: a plan can hold a million copies, and a digester
/// takes long runs far faster than single numbers.
class NumberBlock {
 public:
  void push(std::uint64_t number) noexcept {
    for (int byte = 0; byte < 8; ++byte) {
      bytes_[size_++] = static_cast<std::byte>(number >> (8 * byte));
    }
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), size_}; }

 private:
  // Eight numbers of a copy, and three for each dimension.
  std::array<std::byte, 8 * (8 + 3 * rank_max)> bytes_;
  std::size_t size_ = 0;
};

void add(Digester& digester, const Copy& copy) {
  NumberBlock block;
  block.push(copy.source);
  block.push(copy.source_region);
  block.push(copy.target_region);
  block.push(static_cast<std::uint64_t>(copy.source_type));
  block.push(static_cast<std::uint64_t>(copy.target_type));
  block.push(copy.source_offset);
  block.push(copy.target_offset);
  block.push(static_cast<std::uint64_t>(copy.extent.rank()));
  for (int dim = 0; dim < copy.extent.rank(); ++dim) {
    block.push(static_cast<std::uint64_t>(copy.extent[dim]));
    block.push(static_cast<std::uint64_t>(copy.source_stride[dim]));
    block.push(static_cast<std::uint64_t>(copy.target_stride[dim]));
  }
  digester.add(block.bytes());
}

Digest digest_of(const CopyList& copies) {
  Digester digester;
  for (const Copy& copy : copies) add(digester, copy);
  return digester.finish();
}

}  // namespace

std::uint64_t target_bytes(const Copy& copy) noexcept {
  return static_cast<std::uint64_t>(element_count(copy.extent)) * size_of(copy.target_type);
}

std::uint64_t source_bytes(const Copy& copy) noexcept {
  return static_cast<std::uint64_t>(element_count(copy.extent)) * size_of(copy.source_type);
}

Digest digest_of(const Plan& plan) {
  Digester digester;
  digester.add(static_cast<std::uint64_t>(plan.sources.size()));
  for (const PlanSource& source : plan.sources) {
    add(digester, source.shard);
    digester.add(static_cast<std::uint64_t>(source.slots));
    digester.add(static_cast<std::uint64_t>(source.regions.size()));
    for (const RegionInfo& region : source.regions) {
      digester.add(static_cast<std::uint64_t>(region.kind));
      digester.add(region.bytes);
    }
  }
  digester.add(static_cast<std::uint64_t>(plan.parts.size()));
  std::unordered_map<const Copy*, Digest> of_lists;
  for (const PlanPart& part : plan.parts) {
    const auto [of_list, is_new] = of_lists.try_emplace(part.copies.data());
    if (is_new) of_list->second = digest_of(part.copies);
    add(digester, part.target);
    digester.add(static_cast<std::uint64_t>(part.copies.size()));
    digester.add(of_list->second.high);
    digester.add(of_list->second.low);
  }
  digester.add(static_cast<std::uint64_t>(plan.unused.size()));
  for (const std::string& name : plan.unused) digester.add(std::string_view(name));
  return digester.finish();
}

}  // namespace weir
