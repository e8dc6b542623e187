#include "runtime/convert.hpp"

#include "runtime/internal/kernels.hpp"
#include "runtime/internal/stream_copy.hpp"

namespace weir {

void convert_run(TypePair types, std::byte* target, const std::byte* source, std::size_t count,
                 SimdLevel level) noexcept {
  using internal::float_index;
  const auto& kernels = internal::kernels_of(level);
  kernels.convert[float_index(types.source)][float_index(types.target)](target, source, count);
  if (count * size_of(types.target) >= internal::stream_target_bytes_min) stream_fence();
}

}  // namespace weir
