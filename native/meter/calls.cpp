// Lists the call numbers and makes the BPF filter from them.
#include "calls.h"

#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>

namespace heapwright::meter {
namespace {

struct Number {
  std::uint32_t number;
  Call call;
};

// Kernel ABI: these numbers never change. x32 shares x86_64's numbers (bit 30 set), except for
// exec.
constexpr std::uint32_t kX32Bit = 0x40000000U;
constexpr std::array<Number, 19> kX86_64{{{9, Call::kMmap},
                                          {10, Call::kMprotect},
                                          {11, Call::kMunmap},
                                          {12, Call::kBrk},
                                          {25, Call::kMremap},
                                          {28, Call::kMadvise},
                                          {30, Call::kShmat},
                                          {67, Call::kShmdt},
                                          {56, Call::kFork},
                                          {57, Call::kFork},
                                          {58, Call::kFork},
                                          {435, Call::kFork},
                                          {59, Call::kExec},
                                          {322, Call::kExec},
                                          {520, Call::kExec},
                                          {545, Call::kExec},
                                          {231, Call::kExit},
                                          {317, Call::kOwnListener},
                                          {157, Call::kOwnStrictMode}}};
constexpr std::array<Number, 18> kI386{{{90, Call::kMmap},
                                        {192, Call::kMmap},
                                        {125, Call::kMprotect},
                                        {91, Call::kMunmap},
                                        {45, Call::kBrk},
                                        {163, Call::kMremap},
                                        {219, Call::kMadvise},
                                        {397, Call::kShmat},
                                        {398, Call::kShmdt},
                                        {2, Call::kFork},
                                        {120, Call::kFork},
                                        {190, Call::kFork},
                                        {435, Call::kFork},
                                        {11, Call::kExec},
                                        {358, Call::kExec},
                                        {252, Call::kExit},
                                        {354, Call::kOwnListener},
                                        {172, Call::kOwnStrictMode}}};
constexpr std::array<Number, 15> kAarch64{{{222, Call::kMmap},
                                           {226, Call::kMprotect},
                                           {215, Call::kMunmap},
                                           {214, Call::kBrk},
                                           {216, Call::kMremap},
                                           {233, Call::kMadvise},
                                           {196, Call::kShmat},
                                           {197, Call::kShmdt},
                                           {220, Call::kFork},
                                           {435, Call::kFork},
                                           {221, Call::kExec},
                                           {281, Call::kExec},
                                           {94, Call::kExit},
                                           {277, Call::kOwnListener},
                                           {167, Call::kOwnStrictMode}}};
// clone(2), whose first argument says whether it makes a thread.
constexpr std::uint32_t kCloneX86_64 = 56;
constexpr std::uint32_t kCloneI386 = 120;
constexpr std::uint32_t kCloneAarch64 = 220;
constexpr std::uint64_t kOldMmapI386 = 90;  // its only argument is the address of a structure

struct Architecture {
  std::uint32_t audit;
  std::span<const Number> numbers;
  std::uint32_t clone;
};

const std::array<Architecture, 3> kArchitectures{{{AUDIT_ARCH_X86_64, kX86_64, kCloneX86_64},
                                                  {AUDIT_ARCH_I386, kI386, kCloneI386},
                                                  {AUDIT_ARCH_AARCH64, kAarch64, kCloneAarch64}}};

sock_filter statement(unsigned code, std::uint32_t k) {
  return {.code = static_cast<std::uint16_t>(code), .jt = 0, .jf = 0, .k = k};
}

sock_filter jump(unsigned code, std::uint32_t k, std::size_t yes, std::size_t no) {
  return {.code = static_cast<std::uint16_t>(BPF_JMP | code | BPF_K),
          .jt = static_cast<std::uint8_t>(yes),
          .jf = static_cast<std::uint8_t>(no),
          .k = k};
}

sock_filter load(std::size_t offset) {
  return statement(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset));
}

// The low half of an argument; both byte orders we know of are little-endian.
sock_filter load_argument(std::size_t index) {
  return load(offsetof(seccomp_data, args) + index * sizeof(std::uint64_t));
}

// Builds the instructions for a matching number: the return, after a check of the arguments if they
// decide.
std::vector<sock_filter> body(const Architecture& arch, const Number& entry, std::uint32_t action) {
  const auto hit = statement(BPF_RET | BPF_K, action | static_cast<std::uint32_t>(entry.call));
  const auto allow = statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  if (entry.number == arch.clone && entry.call == Call::kFork) {
    return {load_argument(0), jump(BPF_JSET, CLONE_THREAD, 0, 1), allow, hit};
  }
  if (entry.call == Call::kOwnListener) {
    const auto strict = statement(BPF_RET | BPF_K, action | static_cast<std::uint32_t>(Call::kOwnStrictMode));
    return {load_argument(0),
            jump(BPF_JEQ, SECCOMP_SET_MODE_STRICT, 4, 0),
            jump(BPF_JEQ, SECCOMP_SET_MODE_FILTER, 0, 4),
            load_argument(1),
            jump(BPF_JSET, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 2),
            hit,
            strict,
            allow};
  }
  if (entry.call == Call::kOwnStrictMode) {
    return {load_argument(0),
            jump(BPF_JEQ, PR_SET_SECCOMP, 0, 3),
            load_argument(1),
            jump(BPF_JEQ, SECCOMP_MODE_STRICT, 0, 1),
            hit,
            allow};
  }
  return {hit};
}

}  // namespace

bool gives_back(const CallArguments& call) {
  switch (call.call) {
    case Call::kMunmap:
    case Call::kBrk:
      return true;
    case Call::kMremap:
      return call.values[2] < call.values[1];
    case Call::kMmap:
      return (call.values[3] & MAP_FIXED) != 0;
    case Call::kMadvise:
      return call.values[2] == MADV_DONTNEED || call.values[2] == MADV_REMOVE;
    default:
      return false;
  }
}

Call classify(std::uint32_t arch, std::uint64_t number, std::uint64_t first_argument) {
  for (const auto& architecture : kArchitectures) {
    if (architecture.audit != arch) {
      continue;
    }
    const std::uint64_t plain = arch == AUDIT_ARCH_X86_64 ? number & ~std::uint64_t{kX32Bit} : number;
    for (const auto& entry : architecture.numbers) {
      if (entry.number == plain) {
        if (plain == architecture.clone && (first_argument & CLONE_THREAD) != 0) {
          return Call::kNone;
        }
        // seccomp(2) sets both modes; prctl(2) stops only for strict mode.
        const bool strict = entry.call == Call::kOwnListener && first_argument == SECCOMP_SET_MODE_STRICT;
        return strict ? Call::kOwnStrictMode : entry.call;
      }
    }
  }
  return Call::kNone;
}

CallArguments watched_call(std::uint32_t arch, std::uint64_t number,
                           const std::array<std::uint64_t, 6>& arguments) {
  CallArguments call{.call = classify(arch, number, arguments[0])};
  if (arch != AUDIT_ARCH_I386 || number != kOldMmapI386) {
    call.values = arguments;
  }
  return call;
}

std::vector<sock_filter> build_filter(std::uint32_t action) {
  std::vector<sock_filter> filter;
  for (const auto& arch : kArchitectures) {
    std::vector<sock_filter> section{load(offsetof(seccomp_data, nr))};
    if (arch.audit == AUDIT_ARCH_X86_64) {
      section.push_back(statement(BPF_ALU | BPF_AND | BPF_K, ~kX32Bit));
    }
    for (const auto& entry : arch.numbers) {
      const auto then = body(arch, entry, action);
      section.push_back(jump(BPF_JEQ, entry.number, 0, then.size()));
      section.insert(section.end(), then.begin(), then.end());
    }
    section.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    filter.push_back(load(offsetof(seccomp_data, arch)));
    filter.push_back(jump(BPF_JEQ, arch.audit, 0, section.size()));
    filter.insert(filter.end(), section.begin(), section.end());
  }
  filter.push_back(statement(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

int install_filter(const std::vector<sock_filter>& filter, unsigned flags) {
  const sock_fprog program{.len = static_cast<unsigned short>(filter.size()),
                           .filter = const_cast<sock_filter*>(filter.data())};
  // Before 5.16 a filter without SPEC_ALLOW also enables costly speculation barriers.
  const unsigned all = flags | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
  auto result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, all, &program);
  if (result < 0 && errno == EACCES) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
      return -1;
    }
    result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, all, &program);
  }
  return static_cast<int>(result);
}

int continue_call(int listener, std::uint64_t id) {
  seccomp_notif_resp response{};
  response.id = id;
  response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  while (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response) != 0) {
    if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace heapwright::meter
