#include "runtime/region.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "runtime/available_memory.hpp"

namespace weir {

// Goal: regions are zeroed, keep their size for ever, and lack of memory is an error and not a
// signal. Method: make them, look at them through the kernel, and ask for too much.

namespace {

bool all_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

TEST_CASE("a new region is zeroed and can be written to its last byte", "[runtime]") {
  for (const RegionKind kind : {RegionKind::host_private, RegionKind::host_shared}) {
    for (const std::uint64_t bytes :
         {std::uint64_t{1}, std::uint64_t{4097}, std::uint64_t{5} << 20}) {
      for (const bool eager : {false, true}) {
        const auto region = Region::allocate(
            {.kind = kind, .bytes = bytes, .huge_pages = eager, .prefault = eager});
        REQUIRE(region.has_value());
        REQUIRE((*region)->kind() == kind);
        REQUIRE((*region)->bytes().size() == bytes);
        REQUIRE(all_zero((*region)->bytes()));
        (*region)->bytes().back() = std::byte{7};
        REQUIRE(((*region)->descriptor() >= 0) == (kind == RegionKind::host_shared));
      }
    }
  }
}

TEST_CASE("a large region starts where a huge page can", "[runtime]") {
  for (const RegionKind kind : {RegionKind::host_private, RegionKind::host_shared}) {
    const auto region = Region::allocate({.kind = kind, .bytes = (std::uint64_t{4} << 20) + 1});
    REQUIRE(region.has_value());
    const auto address = reinterpret_cast<std::uintptr_t>((*region)->bytes().data());
    REQUIRE(address % (std::uintptr_t{2} << 20) == 0);
  }
}

TEST_CASE("a shared region's bytes are its memfd's, and its size can't change", "[runtime]") {
  const auto region = Region::allocate({.kind = RegionKind::host_shared, .bytes = 10000});
  REQUIRE(region.has_value());
  const int descriptor = (*region)->descriptor();
  (*region)->bytes()[9999] = std::byte{42};
  char read = 0;
  REQUIRE(pread(descriptor, &read, 1, 9999) == 1);
  REQUIRE(read == 42);
  struct stat status {};
  REQUIRE(fstat(descriptor, &status) == 0);
  REQUIRE(status.st_size == 10000);
  REQUIRE(ftruncate(descriptor, 1) != 0);
  REQUIRE(ftruncate(descriptor, 20000) != 0);
  REQUIRE((fcntl(descriptor, F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a region closes its memfd", "[runtime]") {
  int descriptor = -1;
  {
    const auto region = Region::allocate({.kind = RegionKind::host_shared, .bytes = 1});
    descriptor = (*region)->descriptor();
    REQUIRE(fcntl(descriptor, F_GETFD) >= 0);
  }
  REQUIRE(fcntl(descriptor, F_GETFD) < 0);
}

TEST_CASE("borrowed memory is left as it is", "[runtime]") {
  std::vector<std::byte> memory(100, std::byte{5});
  {
    const auto region = Region::borrow(memory);
    REQUIRE(region->kind() == RegionKind::host_private);
    REQUIRE(region->bytes().data() == memory.data());
    REQUIRE(region->bytes().size() == 100);
    REQUIRE(region->descriptor() == -1);
  }
  REQUIRE(memory == std::vector<std::byte>(100, std::byte{5}));
}

TEST_CASE("no bytes and device memory are refused", "[runtime]") {
  const auto empty = Region::allocate({.bytes = 0});
  REQUIRE(empty.error() ==
          Error{ErrorCode::invalid, "a region needs at least one byte, 0 were asked for"});
  const auto device = Region::allocate({.kind = RegionKind::device, .bytes = 1});
  REQUIRE(device.error() ==
          Error{ErrorCode::invalid, "a region of device memory can't be made as host memory"});
}

TEST_CASE("more memory than there is gets a sentence with both numbers", "[runtime]") {
  for (const RegionKind kind : {RegionKind::host_private, RegionKind::host_shared}) {
    const auto region = Region::allocate({.kind = kind, .bytes = std::uint64_t{1} << 45});
    REQUIRE(region.error().code == ErrorCode::refused);
    REQUIRE(region.error().text.starts_with("a region of 33554432 MiB is wanted but only "));
    REQUIRE(region.error().text.find("of memory are available") != std::string::npos);
  }
}

TEST_CASE("a process at its own limits gets an error", "[runtime]") {
  // In a child, since limits can't be raised again. The mask of the child's exit status says which
  // step went wrong.
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    const rlimit none{3, 3};  // Files 0, 1 and 2 are open.
    setrlimit(RLIMIT_NOFILE, &none);
    const auto shared = Region::allocate({.kind = RegionKind::host_shared, .bytes = 1});
    if (shared || shared.error().code != ErrorCode::io ||
        !shared.error().text.starts_with("can't make a shared region of 0 MiB: ")) {
      wrong |= 1;
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const rlimit little{std::uint64_t{64} << 20, std::uint64_t{64} << 20};
    setrlimit(RLIMIT_AS, &little);
    const auto large = Region::allocate({.bytes = std::uint64_t{256} << 20});
    if (large || large.error().code != ErrorCode::refused ||
        large.error().text.find("raise this process's limits") == std::string::npos) {
      wrong |= 2;
    }
#endif
    _exit(wrong);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

TEST_CASE("available memory is read from what the kernel writes", "[runtime]") {
  REQUIRE(available_of_meminfo("MemTotal:  100 kB\nMemAvailable:   12 kB\n") == 12 * 1024);
  REQUIRE_FALSE(available_of_meminfo("MemTotal: 100 kB\n").has_value());
  REQUIRE_FALSE(available_of_meminfo("MemAvailable: 99999999999999999999 kB\n").has_value());
  REQUIRE(available_of_group("1000\n", "700\n", "anon 500\ninactive_file 100\nactive_file 50\n") ==
          450);
  REQUIRE(available_of_group("1000\n", "2000\n", "") == 0);
  REQUIRE_FALSE(available_of_group("max\n", "700\n", "").has_value());
  REQUIRE_FALSE(available_of_group("", "", "").has_value());
  REQUIRE(available_memory_bytes() > 0);
}

}  // namespace weir
