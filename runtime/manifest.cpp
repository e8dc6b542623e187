#include "runtime/manifest.hpp"

#include <algorithm>

namespace weir {

std::string text_of(const ShardId& shard) {
  return (shard.side == Side::trainer ? "trainer " : "rollout ") + std::to_string(shard.replica) +
         "." + std::to_string(shard.rank);
}

std::string_view name_of(RegionKind kind) noexcept {
  switch (kind) {
    case RegionKind::host_private:
      return "private";
    case RegionKind::host_shared:
      return "memfd";
    case RegionKind::device:
      return "device";
  }
  return "unknown";
}

Inventory inventory_of(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> sorted;
  sorted.reserve(tensors.size());
  for (const Tensor& tensor : tensors) sorted.push_back(&tensor);
  std::sort(sorted.begin(), sorted.end(),
            [](const Tensor* a, const Tensor* b) { return a->name < b->name; });
  Digester digester;
  for (const Tensor* tensor : sorted) {
    digester.add(tensor->name);
    digester.add(static_cast<std::uint64_t>(tensor->kind));
    digester.add(static_cast<std::uint64_t>(tensor->shape.rank()));
    for (const std::int64_t extent : tensor->shape.values()) {
      digester.add(static_cast<std::uint64_t>(extent));
    }
  }
  return {tensors.size(), digester.finish()};
}

}  // namespace weir
