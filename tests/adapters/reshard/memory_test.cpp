#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "adapters/reshard/reshard.hpp"
#include "tests/adapters/reshard/quick_folder.hpp"
#include "tests/adapters/reshard/random_checkpoint.hpp"

namespace weir {

// Goal: the memory of a run depends on its batches, not on the checkpoint. Method: reshard a
// checkpoint many times larger than a batch, and ask the kernel for the peak of resident memory,
// mapped file pages included (VmHWM, set back before).

namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

std::int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    std::int64_t kibibytes = 0;
    if (word == key && status >> kibibytes) return kibibytes * 1024;
  }
  return -1;
}

class SilentObserver final : public ReshardObserver {
 public:
  void begin(std::string_view /*stage*/, std::uint64_t /*bytes*/) override {}
  void advance(std::uint64_t /*bytes*/) override {}
  void end() override {}
  bool interrupted() override { return false; }
};

}  // namespace

TEST_CASE("resident memory stays within a few batches, however large the checkpoint", "[reshard]") {
  // A real disk: pages of /dev/shm are the file itself.
  const ScratchFolder folder;
  {
    std::vector<FileTensor> tensors;
    for (int i = 0; i < 48; ++i) {
      tensors.push_back(
          {.name = "t" + std::to_string(i), .type = ElementType::u8, .shape = {1024, 2048}});
    }
    auto writer = SafetensorsWriter::create(folder / "in.safetensors", tensors, {});
    REQUIRE(writer);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto data = (*writer)->data(i);
      std::fill(data.begin(), data.end(), static_cast<std::byte>(i));
      (*writer)->flush(i);
    }
    REQUIRE((*writer)->commit());
  }
  std::ofstream("/proc/self/clear_refs") << "5";
  const std::int64_t before = status_bytes("VmRSS:");
  if (before < 0 || status_bytes("VmHWM:") > before + 4 * mebibyte) {
    SKIP("this kernel does not set the peak of resident memory back");
  }
  Workers workers(2);
  SilentObserver observer;
  ReshardRequest request;
  request.input = folder / "in.safetensors";
  request.to = parse_layout("fsdp2:dp=3").value();
  request.output = folder / "out";
  request.batch_bytes = 4 * mebibyte;
  REQUIRE(reshard(request, workers, observer));
  // A batch's bytes twice, since source and target are both mapped; the source tensors that it
  // reads a part of, whole, since the kernel maps around what is touched; stacks and tables.
  const std::int64_t peak = status_bytes("VmHWM:") - before;
  INFO("peak " << peak / mebibyte << " MiB over the start, for a checkpoint of 96 MiB");
  REQUIRE(peak < 32 * mebibyte);
}

}  // namespace weir
