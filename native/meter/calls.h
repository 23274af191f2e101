// Lists the system calls that the meter watches, and builds the seccomp filter that selects them.
// Their numbers are given for each architecture of a target; a 64-bit kernel also runs 32-bit
// children.
//
// With the filter only these calls stop; all others run at full speed.
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
  // calls that change the set of processes
  kExit,
  kExec,
  kFork,
  // calls of the target that conflict with the meter
  kOwnListener,
  kOwnStrictMode,
};

struct CallArguments {
  Call call = Call::kNone;
  std::array<std::uint64_t, 6> values{};
};

constexpr bool is_mapping(Call call) { return call >= Call::kMmap && call <= Call::kMadvise; }

// Returns which watched call this is, if any.
//
// arch            AUDIT_ARCH_*
// number          the number of the call on that architecture
// first_argument  its first argument, which tells clone from a new thread
Call classify(std::uint32_t arch, std::uint64_t number, std::uint64_t first_argument);

// Returns the watched call with its arguments, as a back end sees it at its entry. The first mmap
// of i386 (number 90) has its arguments in memory, where they are not read: its values are 0.
//
// arch       AUDIT_ARCH_*
// number     the number of the call on that architecture
// arguments  the argument registers
CallArguments watched_call(std::uint32_t arch, std::uint64_t number,
                           const std::array<std::uint64_t, 6>& arguments);

// Returns whether a call may give memory back to the kernel. Any brk may.
bool gives_back(const CallArguments& call);

// A filter that returns `action` (SECCOMP_RET_USER_NOTIF or SECCOMP_RET_TRACE, with the Call as
// data) for watched calls and allows all others. A call that makes a thread does not stop if the
// filter can see its flags.
std::vector<sock_filter> build_filter(std::uint32_t action);

// Installs the filter on the calling process; returns what seccomp(2) returned (the listener, with
// that flag), or -1 with errno. Without privilege it sets no_new_privs first; with it, setuid
// children keep working.
int install_filter(const std::vector<sock_filter>& filter, unsigned flags);

// Lets a call go on that a seccomp listener has received.
//
// listener  as install_filter returned it
// id        of the notification
//
// Returns 0 or an errno: ENOENT if no such call waits (the caller was killed), EINVAL before Linux
// 5.5.
int continue_call(int listener, std::uint64_t id);

}  // namespace heapwright::meter
