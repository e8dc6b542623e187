#include "transports/shm/internal/peer_memfd.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "runtime/region.hpp"
#include "transports/shm/internal/unix_socket.hpp"

namespace weir::shm {

// Goal: only the memfd that a ticket means is mapped. Method: this process is the peer, and puts
// other files where the region's descriptor should be.

namespace {

/// What a ticket would say of that descriptor of this process.
Ticket ticket_of(int descriptor, std::uint64_t bytes) {
  struct stat status {};
  REQUIRE(fstat(descriptor, &status) == 0);
  return {.owner = *own_process(),
          .kind = RegionKind::host_shared,
          .bytes = bytes,
          .descriptor = static_cast<std::uint32_t>(descriptor),
          .device = status.st_dev,
          .inode = status.st_ino};
}

Descriptor memfd(off_t bytes, int seals) {
  Descriptor file(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(ftruncate(file.get(), bytes) == 0);
  REQUIRE(fcntl(file.get(), F_ADD_SEALS, seals) == 0);
  return file;
}

void require_error(const Ticket& ticket, ErrorCode code, const std::string& words) {
  const auto mapping = map_peer_memfd(ticket);
  REQUIRE_FALSE(mapping.has_value());
  INFO(mapping.error().text);
  REQUIRE(mapping.error().code == code);
  REQUIRE(mapping.error().text.find(words) != std::string::npos);
}

}  // namespace

TEST_CASE("fetches from one region share one mapping, which ends with them", "[transports]") {
  const auto region = *Region::allocate({.kind = RegionKind::host_shared, .bytes = 12345});
  region->bytes()[12344] = std::byte{9};
  MappingCache cache;
  const Ticket ticket = ticket_of(region->descriptor(), 12345);
  auto first = *cache.map(ticket);
  const auto second = *cache.map(ticket);
  REQUIRE(first == second);
  REQUIRE(first->bytes().size() == 12345);
  REQUIRE(first->bytes()[12344] == std::byte{9});
  const std::weak_ptr<const Mapping> seen = first;
  first.reset();
  const_cast<std::shared_ptr<const Mapping>&>(second).reset();
  REQUIRE(seen.expired());
}

TEST_CASE("a descriptor that stands for another file now is not mapped", "[transports]") {
  Descriptor file = memfd(100, F_SEAL_SHRINK);
  const Ticket ticket = ticket_of(file.get(), 100);
  REQUIRE(map_peer_memfd(ticket).has_value());
  const Descriptor other = memfd(100, F_SEAL_SHRINK);
  REQUIRE(dup2(other.get(), file.get()) == file.get());
  require_error(ticket, ErrorCode::unavailable, "its descriptor stands for another file now");
  // A pipe with no writer would block whoever opens it for reading.
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  REQUIRE(dup2(ends[0], file.get()) == file.get());
  require_error(ticket, ErrorCode::unavailable, "its descriptor stands for another file now");
  Ticket pipe = ticket_of(file.get(), 100);
  require_error(pipe, ErrorCode::invalid, "is not a memfd of 100 bytes");
  close(ends[0]);
  close(ends[1]);
  file = Descriptor();
  require_error(ticket, ErrorCode::unavailable, "can't open the shared region of process");
}

TEST_CASE("a file that could shrink under its reader is not mapped", "[transports]") {
  const Descriptor open_file = memfd(100, F_SEAL_GROW);
  require_error(ticket_of(open_file.get(), 100), ErrorCode::invalid,
                "is not sealed against shrinking");
  const Descriptor plain(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  struct stat status {};
  REQUIRE(fstat(plain.get(), &status) == 0);
  require_error(ticket_of(plain.get(), static_cast<std::uint64_t>(status.st_size)),
                ErrorCode::invalid, "is not sealed against shrinking");
}

TEST_CASE("a memfd of another size than stated is not mapped", "[transports]") {
  const Descriptor file = memfd(100, F_SEAL_SHRINK);
  require_error(ticket_of(file.get(), 101), ErrorCode::invalid, "is not a memfd of 101 bytes");
}

}  // namespace weir::shm
