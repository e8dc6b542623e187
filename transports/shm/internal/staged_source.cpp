#include <array>
#include <optional>

#include "runtime/strided_copy.hpp"
#include "transports/internal/runs.hpp"
#include "transports/shm/internal/source.hpp"
#include "transports/shm/internal/staging_client.hpp"

namespace weir::shm {
namespace {

/// The owner packs with memcpy, to which a run of its own costs no more than a few lines of gap.
constexpr std::uint64_t gap_bytes_max = 64;

StagingRequest request_of(const Runs& runs, std::uint64_t region, std::uint32_t slot) {
  return {.slot = slot,
          .region = region,
          .offset = runs.source_offset,
          .run_bytes = runs.run_bytes,
          .rank = runs.rank,
          .extent = runs.extent,
          .stride = runs.source_stride};
}

class StagedSource final : public Source {
 public:
  StagedSource(std::uint64_t region, std::shared_ptr<StagingClient> client)
      : region_(region), client_(std::move(client)) {}

  std::vector<Copy> cut(const Copy& copy, std::uint64_t) const override {
    return cut_to_fit(copy, gap_bytes_max, staging_slot_bytes);
  }

  Result<void> read(std::span<const Copy> copies, const Targets& targets,
                    const std::atomic<bool>& stop) override {
    auto connection = client_->acquire(stop);
    if (!connection) return failure(connection);
    const Result<void> moved = move_all(**connection, copies, targets, stop);
    client_->release(std::move(*connection), moved.has_value());
    return moved;
  }

 private:
  /// Keeps every slot asked for. Replies come in the order of the requests.
  Result<void> move_all(const StagingConnection& connection, std::span<const Copy> copies,
                        const Targets& targets, const std::atomic<bool>& stop) const {
    std::array<Copy, staging_slots> waiting;
    std::size_t asked = 0;
    for (std::size_t done = 0; done < copies.size(); ++done) {
      for (; asked < copies.size() && asked - done < staging_slots; ++asked) {
        const auto slot = static_cast<std::uint32_t>(asked % staging_slots);
        const PackedCopy packed = pack(copies[asked], gap_bytes_max);
        waiting[slot] = packed.from_packed;
        StagingRequest request = request_of(packed.runs, region_, slot);
        // A failure to send shows when the reply is waited for, with its reason.
        send_packet(connection.socket(), packet_of(request));
      }
      const auto slot = static_cast<std::uint32_t>(done % staging_slots);
      if (Result<void> filled = await(connection, slot, stop); !filled) return filled;
      const Copy& copy = waiting[slot];
      copy_strided(copy, connection.slot(slot), targets[copy.target_region]);
    }
    return {};
  }

  Result<void> await(const StagingConnection& connection, std::uint32_t slot,
                     const std::atomic<bool>& stop) const {
    StagingReply reply;
    auto received = client_->receive(connection.socket(), packet_of(reply), nullptr, stop);
    if (!received) return received;
    const std::string who = "process " + std::to_string(client_->owner().pid());
    if (reply.magic != staging_magic || reply.slot != slot) {
      return failure(ErrorCode::invalid, who + " sent a staging reply that nobody asked for");
    }
    switch (reply.status) {
      case StagingStatus::done:
        return {};
      case StagingStatus::unknown_region:
        return failure(ErrorCode::unavailable, who + " has withdrawn its region");
      case StagingStatus::out_of_bounds:
        return failure(ErrorCode::invalid, who + " says that a read leaves its region");
    }
    return failure(ErrorCode::invalid, who + " sent a staging reply that nobody asked for");
  }

  const std::uint64_t region_;
  const std::shared_ptr<StagingClient> client_;
};

}  // namespace

std::unique_ptr<Source> make_staged_source(std::uint64_t region,
                                           std::shared_ptr<StagingClient> client) {
  return std::make_unique<StagedSource>(region, std::move(client));
}

}  // namespace weir::shm
