#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "runtime/strided_copy.hpp"
#include "tests/transports/contract_rig.hpp"
#include "transports/shm/internal/staging_client.hpp"
#include "transports/shm/internal/staging_server.hpp"
#include "transports/shm/internal/ticket.hpp"
#include "transports/shm/internal/unix_socket.hpp"
#include "transports/shm/shm_transport.hpp"

namespace weir::shm {

// Goal: neither end of the staging ring can be led astray by the other. Method: this process plays
// a hostile owner against a real reader, and a hostile reader against a real owner.

namespace {

constexpr std::chrono::milliseconds patience(5000);

/// An owner that does as its script says with the first reader that connects.
class FakeOwner {
 public:
  using Script = std::function<void(const Descriptor& reader)>;

  explicit FakeOwner(Script script)
      : listener_(listen_abstract(staging_name(*own_process(), endpoint))),
        thread_([this, script = std::move(script)] {
          if (!wait_readable(listener_.get(), -1, patience)) return;
          const Descriptor reader(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
          script(reader);
        }) {}
  ~FakeOwner() { thread_.join(); }

  static constexpr std::uint64_t endpoint = 70000;

 private:
  Descriptor listener_;
  std::thread thread_;
};

/// What a staged fetch from it ends in.
Result<FetchReport> fetch_from(FakeOwner::Script script) {
  const FakeOwner owner(std::move(script));
  const auto transport = make_shm_transport(
      {.worker_count = 1, .staging_only = true, .staging_deadline = std::chrono::seconds(2)});
  const auto target = *Region::allocate({.bytes = rig_source_bytes});
  const Ticket ticket{.owner = *own_process(),
                      .bytes = rig_source_bytes,
                      .region = 1,
                      .endpoint = FakeOwner::endpoint,
                      .address = 4096};
  const PlanSource source{
      .shard = {},
      .regions = {{RegionKind::host_private, rig_source_bytes, {{"shm", encode(ticket)}}}}};
  const Copy copy = whole_copy();
  Region* const targets[] = {target.get()};
  const auto fetch = transport->prepare(
      {.copies = std::span(&copy, 1), .sources = std::span(&source, 1), .targets = targets});
  if (!fetch) return failure(fetch);
  return run(**fetch);
}

void require_error(const Result<FetchReport>& result, ErrorCode code, const std::string& words) {
  REQUIRE_FALSE(result.has_value());
  INFO(result.error().text);
  REQUIRE(result.error().code == code);
  REQUIRE(result.error().text.find(words) != std::string::npos);
}

Descriptor sealed_memfd(std::uint64_t bytes, int seals) {
  Descriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
    return Descriptor();
  }
  return file;
}

/// Sends a sound welcome, then hands over to the script with each request.
FakeOwner::Script after_welcome(FakeOwner::Script script) {
  return [script = std::move(script)](const Descriptor& reader) {
    const Descriptor ring = sealed_memfd(staging_ring_bytes, F_SEAL_SHRINK);
    StagingWelcome welcome;
    send_packet(reader, packet_of(welcome), ring.get());
    StagingRequest request;
    if (wait_readable(reader.get(), -1, patience) && receive_packet(reader, packet_of(request))) {
      script(reader);
    }
  };
}

/// A reader that the server takes for one of ours; invalid when it does not let us in.
struct RawReader {
  explicit RawReader(const StagingServer& server)
      : socket(connect_abstract(staging_name(*own_process(), server.endpoint()))) {
    StagingWelcome welcome;
    if (!socket.valid() || !wait_readable(socket.get(), -1, patience) ||
        !receive_packet(socket, packet_of(welcome), &ring)) {
      socket = Descriptor();
    }
  }
  /// The reply, or nothing when the server ended the connection.
  std::optional<StagingReply> ask(StagingRequest request) const {
    StagingReply reply;
    send_packet(socket, packet_of(request));
    wait_readable(socket.get(), -1, patience);
    if (!receive_packet(socket, packet_of(reply))) return std::nullopt;
    return reply;
  }

  Descriptor socket;
  Descriptor ring;
};

}  // namespace

TEST_CASE("a welcome that offers no sound ring is refused", "[transports]") {
  const auto welcomed = [](StagingWelcome welcome, std::uint64_t bytes, int seals) {
    return fetch_from([welcome, bytes, seals](const Descriptor& reader) mutable {
      const Descriptor ring = sealed_memfd(bytes, seals);
      send_packet(reader, packet_of(welcome), ring.get());
      wait_readable(reader.get(), -1, patience);
    });
  };
  const std::string words = "offers something that is no staging ring";
  const StagingWelcome good;
  require_error(welcomed({.magic = 7}, staging_ring_bytes, F_SEAL_SHRINK), ErrorCode::invalid,
                words);
  require_error(welcomed({.slots = 1000000}, staging_ring_bytes, F_SEAL_SHRINK), ErrorCode::invalid,
                words);
  require_error(welcomed({.slot_bytes = 1}, staging_ring_bytes, F_SEAL_SHRINK), ErrorCode::invalid,
                words);
  require_error(welcomed(good, staging_ring_bytes - 1, F_SEAL_SHRINK), ErrorCode::invalid, words);
  require_error(welcomed(good, staging_ring_bytes, F_SEAL_GROW), ErrorCode::invalid, words);
  require_error(fetch_from([](const Descriptor& reader) {
                  StagingWelcome welcome;
                  send_packet(reader, packet_of(welcome));
                  wait_readable(reader.get(), -1, patience);
                }),
                ErrorCode::invalid, words);
  require_error(fetch_from([](const Descriptor& reader) {
                  StagingWelcome welcome;
                  send_packet(reader, packet_of(welcome), reader.get());
                  wait_readable(reader.get(), -1, patience);
                }),
                ErrorCode::invalid, words);
}

TEST_CASE("an owner that says nothing, or hangs up, ends the fetch", "[transports]") {
  require_error(fetch_from([](const Descriptor&) {}), ErrorCode::unavailable,
                "closed its staging connection, or it broke");
  require_error(
      fetch_from([](const Descriptor& reader) { wait_readable(reader.get(), -1, patience); }),
      ErrorCode::timeout, "does not answer; is it stopped?");
  require_error(fetch_from(after_welcome([](const Descriptor&) {})), ErrorCode::unavailable,
                "closed its staging connection, or it broke");
}

TEST_CASE("replies that nobody asked for end the fetch", "[transports]") {
  const auto replied = [](StagingReply reply) {
    return fetch_from(after_welcome([reply](const Descriptor& reader) mutable {
      send_packet(reader, packet_of(reply));
      wait_readable(reader.get(), -1, patience);
    }));
  };
  const std::string words = "sent a staging reply that nobody asked for";
  require_error(replied({.magic = 0}), ErrorCode::invalid, words);
  require_error(replied({.slot = 1}), ErrorCode::invalid, words);
  require_error(replied({.slot = 0xffff'ffffU}), ErrorCode::invalid, words);
  require_error(replied({.status = static_cast<StagingStatus>(99)}), ErrorCode::invalid, words);
  require_error(replied({.status = StagingStatus::unknown_region}), ErrorCode::unavailable,
                "has withdrawn its region");
  require_error(replied({.status = StagingStatus::out_of_bounds}), ErrorCode::invalid,
                "says that a read leaves its region");
  for (const std::size_t length : {std::size_t{1}, std::size_t{4096}}) {
    require_error(fetch_from(after_welcome([length](const Descriptor& reader) {
                    const std::vector<std::byte> noise(length, std::byte{0x77});
                    send_packet(reader, noise);
                    wait_readable(reader.get(), -1, patience);
                  })),
                  ErrorCode::unavailable, "closed its staging connection, or it broke");
  }
}

TEST_CASE("an owner that is not there, or is another process, is refused", "[transports]") {
  const std::atomic<bool> never = false;
  const auto own = *PeerProcess::find(*own_process());
  StagingClient nobody(own, "weir-shm-nobody", patience);
  const auto absent = nobody.acquire(never);
  REQUIRE(absent.error().code == ErrorCode::unavailable);
  REQUIRE(absent.error().text.find("can't reach the staging server of process") !=
          std::string::npos);

  // A child that listens nowhere; we do, in its name.
  const PeerUnderTest child("shm", RegionKind::host_private, 1);
  const Result<Ticket> ticket = parse_ticket(child.info().tickets[0].bytes);
  REQUIRE(ticket.has_value());
  const Descriptor listener = listen_abstract("weir-shm-test-false-owner");
  StagingClient deceived(*PeerProcess::find(ticket->owner), "weir-shm-test-false-owner", patience);
  const auto refused = deceived.acquire(never);
  REQUIRE(refused.error().code == ErrorCode::invalid);
  REQUIRE(refused.error().text.find("belongs to another process or user") != std::string::npos);
}

TEST_CASE("the owner packs only what lies in an exposed region", "[transports]") {
  const auto server = *StagingServer::start(*own_process());
  std::vector<std::byte> memory(1000);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i);
  server->add(5, memory);
  const RawReader reader(*server);
  REQUIRE(reader.socket.valid());
  const StagingRequest good{.slot = 1,
                            .region = 5,
                            .offset = 10,
                            .run_bytes = 20,
                            .rank = 1,
                            .extent = {3},
                            .stride = {100}};
  REQUIRE(reader.ask(good)->status == StagingStatus::done);
  std::vector<std::byte> packed(60);
  REQUIRE(pread(reader.ring.get(), packed.data(), 60, staging_slot_bytes) == 60);
  for (std::size_t i = 0; i < 60; ++i) REQUIRE(packed[i] == memory[10 + i / 20 * 100 + i % 20]);

  constexpr std::uint64_t huge = ~std::uint64_t{0};
  const auto asked = [&](const std::function<void(StagingRequest&)>& change) {
    StagingRequest request = good;
    change(request);
    return reader.ask(request)->status;
  };
  using R = StagingRequest;
  REQUIRE(asked([](R& r) { r.region = 6; }) == StagingStatus::unknown_region);
  const std::function<void(R&)> wrongs[] = {
      [](R& r) { r.slot = staging_slots; }, [](R& r) { r.offset = 781; },
      [](R& r) { r.offset = huge; }, [](R& r) { r.run_bytes = 0; },
      [](R& r) { r.run_bytes = huge; }, [](R& r) { r.rank = 5; }, [](R& r) { r.extent[0] = 0; },
      [](R& r) { r.extent[0] = huge; }, [](R& r) { r.stride[0] = huge; },
      [](R& r) { r.stride[0] = huge / 2 + 1; },
      // Inside the region, time and again, until it no longer fits the slot.
      [](R& r) { r.stride[0] = 0, r.extent[0] = staging_slot_bytes / 20 + 1; }};
  for (const auto& wrong : wrongs) REQUIRE(asked(wrong) == StagingStatus::out_of_bounds);
  REQUIRE(asked([](R& r) { r.offset = 780; }) == StagingStatus::done);

  server->remove(5);
  REQUIRE(reader.ask(good)->status == StagingStatus::unknown_region);
}

TEST_CASE("noise costs its sender the connection and nobody else anything", "[transports]") {
  const auto server = *StagingServer::start(*own_process());
  const std::vector<std::byte> memory(1000);
  server->add(5, memory);
  const RawReader honest(*server);
  const RawReader hostile(*server);
  REQUIRE_FALSE(hostile.ask({.magic = 1}).has_value());
  const RawReader terse(*server);
  const std::vector<std::byte> noise(3);
  REQUIRE(send_packet(terse.socket, noise));
  REQUIRE_FALSE(terse.ask({}).has_value());
  REQUIRE(honest.ask({.region = 5, .run_bytes = 1000})->status == StagingStatus::done);
}

TEST_CASE("readers beyond the limit are turned away until others leave", "[transports]") {
  const auto server = *StagingServer::start(*own_process());
  std::vector<RawReader> readers;
  for (std::size_t i = 0; i < staging_connections_max; ++i) {
    readers.emplace_back(*server);
    REQUIRE(readers.back().socket.valid());
  }
  REQUIRE_FALSE(RawReader(*server).socket.valid());
  // A connection ends a moment after its reader: by asking for nonsense we see it end.
  REQUIRE_FALSE(readers.back().ask({.magic = 1}).has_value());
  bool again = false;
  for (int attempt = 0; attempt < 1000 && !again; ++attempt) {
    again = RawReader(*server).socket.valid();
  }
  REQUIRE(again);
}

TEST_CASE("the last of a reader's connections is waited for, not opened anew", "[transports]") {
  const auto server = *StagingServer::start(*own_process());
  StagingClient client(*PeerProcess::find(*own_process()),
                       staging_name(*own_process(), server->endpoint()),
                       std::chrono::milliseconds(50));
  const std::atomic<bool> never = false;
  std::vector<std::unique_ptr<StagingConnection>> held;
  // On a busy machine a server may take longer than the client waits: then once more.
  for (int attempt = 0; attempt < 1000 && held.size() < client_connections_max; ++attempt) {
    if (auto next = client.acquire(never)) held.push_back(std::move(*next));
  }
  REQUIRE(held.size() == client_connections_max);
  const auto refused = client.acquire(never);
  REQUIRE(refused.error().code == ErrorCode::timeout);
  REQUIRE(refused.error().text.find("came free in time") != std::string::npos);
  const std::atomic<bool> stopped = true;
  REQUIRE(client.acquire(stopped).error().text == "the fetch was cancelled");
  const StagingConnection* const first = held.front().get();
  client.release(std::move(held.front()), true);
  REQUIRE(client.acquire(never)->get() == first);
}

}  // namespace weir::shm
