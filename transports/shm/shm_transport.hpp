#pragma once
// Shared memory: one strided copy straight from a peer's region on this host into the target.

#include <chrono>
#include <functional>
#include <memory>
#include <string_view>

#include "transports/transport.hpp"

namespace weir {

struct ShmOptions {
  /// Threads that copy; 0 means one per core that this process may run on.
  unsigned worker_count = 0;
  /// Refuse `process_vm_readv` even where the kernel allows it, so that private regions go through
  /// the staging ring. For tests and for hosts with a seccomp profile that kills on the call.
  bool staging_only = false;
  /// How long an owner that fills staging slots may take for one before it counts as stopped.
  std::chrono::milliseconds staging_deadline = std::chrono::seconds(10);
  /// Told once, from `prepare`, when the kernel's policy makes a fetch slower than it could be, and
  /// how to allow the faster way: a line for the log. May be empty.
  std::function<void(std::string_view)> note = {};
};

/// memfd regions are mapped and copied from directly; private regions are read with
/// `process_vm_readv`, or, where the kernel's ptrace policy forbids that, through a memfd staging
/// ring that their owner fills.
std::unique_ptr<Transport> make_shm_transport(const ShmOptions& options);

}  // namespace weir
