#include "runtime/strided_copy.hpp"
#include "transports/shm/internal/source.hpp"

namespace weir::shm {
namespace {

class MappedSource final : public Source {
 public:
  explicit MappedSource(std::shared_ptr<const Mapping> mapping) : mapping_(std::move(mapping)) {}

  std::vector<Copy> cut(const Copy& copy, std::uint64_t part_bytes) const override {
    return split(copy, part_bytes);
  }

  Result<void> read(std::span<const Copy> copies, const Targets& targets,
                    const std::atomic<bool>& stop) override {
    for (const Copy& copy : copies) {
      if (stop) break;
      copy_strided(copy, mapping_->bytes(), targets[copy.target_region]);
    }
    return {};
  }

 private:
  std::shared_ptr<const Mapping> mapping_;
};

}  // namespace

std::unique_ptr<Source> make_mapped_source(std::shared_ptr<const Mapping> mapping) {
  return std::make_unique<MappedSource>(std::move(mapping));
}

}  // namespace weir::shm
