#include "tests/transports/contract_rig.hpp"

#include <catch2/catch_test_macros.hpp>

namespace weir {

Result<FetchReport> outcome(std::promise<Result<FetchReport>>& promise) {
  std::future<Result<FetchReport>> future = promise.get_future();
  REQUIRE(future.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  return future.get();
}

Result<FetchReport> run(Fetch& fetch) {
  std::promise<Result<FetchReport>> promise;
  fetch.start([&promise](Result<FetchReport> result) { promise.set_value(std::move(result)); });
  return outcome(promise);
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

ContractRig::ContractRig(const TransportSubject& subject, std::uint64_t target_bytes)
    : transport(subject.make()) {
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    peers.push_back(std::make_unique<PeerUnderTest>(subject.name, subject.source_kind,
                                                    rig_source_bytes + rank));
    sources.push_back({.shard = {Side::trainer, 0, rank}, .regions = {peers.back()->info()}});
  }
  auto made = Region::allocate({.bytes = target_bytes});
  REQUIRE(made.has_value());
  target = std::move(*made);
  wipe();
}

Result<std::unique_ptr<Fetch>> ContractRig::prepare(const std::vector<Copy>& copies) const {
  Region* const targets[] = {target.get()};
  return transport->prepare({.copies = copies, .sources = sources, .targets = targets});
}

std::vector<Copy> ContractRig::draw_plan(std::mt19937_64& random, std::size_t copies) const {
  std::vector<Copy> plan;
  std::uint64_t free_from = 0;
  while (plan.size() < copies) {
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    Copy copy = draw_copy(random, reads, writes);
    if (reads > rig_source_bytes || writes > target->bytes().size() - free_from) break;
    copy.source = static_cast<std::uint32_t>(random() % 2);
    copy.source_offset += random() % (rig_source_bytes - reads + 1);
    copy.target_offset += free_from;
    free_from += writes;
    plan.push_back(copy);
  }
  return plan;
}

Bytes ContractRig::expected(const std::vector<Copy>& copies, std::uint64_t round) const {
  Bytes result(target->bytes().size(), untouched);
  std::vector<Bytes> memory;
  for (const PlanSource& source : sources) {
    Bytes& bytes = memory.emplace_back(source.regions[0].bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = peer_byte(round, i);
  }
  for (const Copy& copy : copies) naive_copy(copy, memory[copy.source], result);
  return result;
}

void ContractRig::wipe() {
  std::memset(target->bytes().data(), static_cast<int>(untouched), target->bytes().size());
}

Copy whole_copy() {
  return {.source_type = ElementType::u8,
          .target_type = ElementType::u8,
          .extent = {static_cast<std::int64_t>(rig_source_bytes)},
          .source_stride = {1},
          .target_stride = {1}};
}

}  // namespace weir
