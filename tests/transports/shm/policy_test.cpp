#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "tests/transports/contract_rig.hpp"
#include "transports/shm/shm_transport.hpp"

namespace weir {

// Goal: where the kernel forbids a way, the next one is taken, and a person is told once how to
// allow the faster one. Method: a thread forbids itself (and the workers it starts) the system
// calls in question with a seccomp filter, as a container's policy would.

namespace {

/// From now on in this thread `process_vm_readv` fails as under a ptrace policy, and so does
/// looking into another process's descriptors.
bool forbid_reading_others() {
  constexpr auto number = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  constexpr auto flags = static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 16);
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, flags),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_PATH, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = sizeof program / sizeof program[0], .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

struct Outcome {
  bool filtered = false;
  std::vector<std::string> notes;
  std::string error;
  bool right = false;
};

/// Two fetches of a peer's region under the policy; before the second the peer may withdraw.
Outcome fetch_under_policy(ContractRig& rig) {
  Outcome outcome;
  std::thread([&] {
    outcome.filtered = forbid_reading_others();
    rig.transport = make_shm_transport({.worker_count = 1, .note = [&](std::string_view note) {
                                          outcome.notes.emplace_back(note);
                                        }});
    for (int round = 0; round < 2; ++round) {
      const auto fetch = rig.prepare({whole_copy()});
      if (!fetch) {
        outcome.error = fetch.error().text;
      } else {
        outcome.right = run(**fetch).has_value() &&
                        same_bytes(rig.target->bytes(), rig.expected({whole_copy()}, 0));
      }
    }
    rig.transport.reset();
  }).join();
  return outcome;
}

}  // namespace

TEST_CASE("what can't be read directly is staged, and a note says how to allow it",
          "[transports]") {
  for (const RegionKind kind : {RegionKind::host_private, RegionKind::host_shared}) {
    ContractRig rig({.name = "shm", .source_kind = kind, .make = [] {
                       return make_shm_transport({.worker_count = 1});
                     }});
    const Outcome outcome = fetch_under_policy(rig);
    REQUIRE(outcome.filtered);
    INFO(outcome.error);
    REQUIRE(outcome.right);
    REQUIRE(outcome.notes.size() == 1);
    REQUIRE(outcome.notes[0].find("kernel.yama.ptrace_scope to 0") != std::string::npos);
    REQUIRE(outcome.notes[0].find("--cap-add=SYS_PTRACE") != std::string::npos);
  }
}

TEST_CASE("where no way is left the error says how to allow one", "[transports]") {
  ContractRig rig({.name = "shm", .source_kind = RegionKind::host_private, .make = [] {
                     return make_shm_transport({.worker_count = 1});
                   }});
  // The ticket's endpoint (after magic, kind, boot id and five numbers) becomes one where nobody
  // listens.
  std::string& ticket = rig.sources[0].regions[0].tickets[0].bytes;
  ticket[8 + 1 + 16 + 8 + 4 + 8 + 8 + 8] = 99;
  const Outcome outcome = fetch_under_policy(rig);
  REQUIRE(outcome.filtered);
  INFO(outcome.error);
  REQUIRE(outcome.error.starts_with("can't read region 0 of trainer 0.0: the kernel forbids"));
  REQUIRE(outcome.error.find("can't reach the staging server") != std::string::npos);
  REQUIRE(outcome.error.find("kernel.yama.ptrace_scope to 0") != std::string::npos);
}

}  // namespace weir
