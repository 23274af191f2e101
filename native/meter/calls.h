// The system calls that the meter watches: their numbers on each architecture a target may have (a 64-bit
// kernel runs 32-bit children too), and the seccomp filter that picks them out.
//
// Why a filter: only these calls stop; all others run at full speed.
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <vector>

namespace heapwright::meter {

enum class Call : std::uint8_t {
  kNone,
  // the mapping calls, counted in mapping_calls
  kMmap,
  kMunmap,
  kBrk,
  kMremap,
  kMprotect,
  kMadvise,
  // shared memory: it counts for Massif
  kShmat,
  kShmdt,
  // what changes the set of processes
  kExit,
  kExec,
  kFork,
  // what the target does that the meter cannot live beside
  kOwnListener,
  kOwnStrictMode,
};

struct CallArguments {
  Call call = Call::kNone;
  std::array<std::uint64_t, 6> values{};
};

constexpr bool is_mapping(Call call) { return call >= Call::kMmap && call <= Call::kMadvise; }

// Which watched call this is, if any. `arch` is AUDIT_ARCH_*.
Call classify(std::uint32_t arch, std::uint64_t number, std::uint64_t first_argument);

// Whether a call may give memory back to the kernel. Any brk may.
bool gives_back(const CallArguments& call);

// A filter that returns `action` (SECCOMP_RET_USER_NOTIF or SECCOMP_RET_TRACE, with the Call as data) for
// watched calls and allows all others. New threads are allowed without a stop where the kernel lets us see
// it.
std::vector<sock_filter> build_filter(std::uint32_t action);

// Installs the filter on the calling process; returns what seccomp(2) returned (the listener, with that
// flag), or -1 with errno. Without privilege it sets no_new_privs first; with it, setuid children keep
// working.
int install_filter(const std::vector<sock_filter>& filter, unsigned flags);

}  // namespace heapwright::meter
