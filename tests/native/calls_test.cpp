// Tests the seccomp filter by an interpreter that decides each call as the kernel would.
#include "calls.h"

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>

#include <cstring>
#include <initializer_list>

namespace heapwright::meter {
namespace {

constexpr std::uint32_t kAction = SECCOMP_RET_TRACE;

// Interprets the part of classic BPF that the filter uses, as seccomp does.
std::uint32_t run(const std::vector<sock_filter>& filter, const seccomp_data& data) {
  std::uint32_t accumulator = 0;
  for (std::size_t at = 0; at < filter.size(); ++at) {
    const auto& step = filter[at];
    switch (step.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        std::memcpy(&accumulator, reinterpret_cast<const char*>(&data) + step.k, sizeof accumulator);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        accumulator &= step.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        at += accumulator == step.k ? step.jt : step.jf;
        break;
      case BPF_JMP | BPF_JSET | BPF_K:
        at += (accumulator & step.k) != 0 ? step.jt : step.jf;
        break;
      case BPF_RET | BPF_K:
        return step.k;
      default:
        ADD_FAILURE() << "unknown instruction " << step.code;
        return 0;
    }
  }
  ADD_FAILURE() << "ran off the end";
  return 0;
}

std::uint32_t verdict(std::uint32_t arch, int number, std::uint64_t first = 0, std::uint64_t second = 0) {
  seccomp_data data{};
  data.arch = arch;
  data.nr = number;
  data.args[0] = first;
  data.args[1] = second;
  return run(build_filter(kAction), data);
}

std::uint32_t hit(Call call) { return kAction | static_cast<std::uint32_t>(call); }

TEST(Filter, StopsAtMappingCallsAndAllowsOthers) {
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 9), hit(Call::kMmap));
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 12), hit(Call::kBrk));
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 28), hit(Call::kMadvise));
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 0), SECCOMP_RET_ALLOW);    // read
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 202), SECCOMP_RET_ALLOW);  // futex
  EXPECT_EQ(verdict(AUDIT_ARCH_I386, 192), hit(Call::kMmap));     // mmap2
  EXPECT_EQ(verdict(AUDIT_ARCH_I386, 9), SECCOMP_RET_ALLOW);      // link: x86_64's mmap
  EXPECT_EQ(verdict(AUDIT_ARCH_AARCH64, 222), hit(Call::kMmap));
}

TEST(Filter, AllowsWhatItDoesNotKnow) {
  EXPECT_EQ(verdict(AUDIT_ARCH_S390X, 90), SECCOMP_RET_ALLOW);
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, -1), SECCOMP_RET_ALLOW);
}

TEST(Filter, SeesX32CallsAsX86_64) { EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 0x40000009), hit(Call::kMmap)); }

TEST(Filter, AThreadIsNoProcess) {
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 56, CLONE_VM | CLONE_THREAD), SECCOMP_RET_ALLOW);
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 56, CLONE_VM | CLONE_VFORK), hit(Call::kFork));
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 57), hit(Call::kFork));
}

TEST(Filter, OnlyAListenerOfItsOwnIsInTheWay) {
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 317, SECCOMP_SET_MODE_FILTER, 0), SECCOMP_RET_ALLOW);
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 317, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER),
            hit(Call::kOwnListener));
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 317, SECCOMP_GET_ACTION_AVAIL, SECCOMP_FILTER_FLAG_NEW_LISTENER),
            SECCOMP_RET_ALLOW);
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 157, PR_SET_SECCOMP, SECCOMP_MODE_STRICT), hit(Call::kOwnStrictMode));
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 157, PR_SET_SECCOMP, SECCOMP_MODE_FILTER), SECCOMP_RET_ALLOW);
  EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 157, PR_SET_NAME), SECCOMP_RET_ALLOW);
}

TEST(Filter, StrictModeMayBeAskedForByEitherCall) {
  struct Numbers {
    std::uint32_t arch;
    int seccomp;
    int prctl;
  };
  for (const auto& [arch, seccomp, prctl] :
       {Numbers{AUDIT_ARCH_X86_64, 317, 157}, {AUDIT_ARCH_I386, 354, 172}, {AUDIT_ARCH_AARCH64, 277, 167}}) {
    EXPECT_EQ(verdict(arch, seccomp, SECCOMP_SET_MODE_STRICT), hit(Call::kOwnStrictMode));
    EXPECT_EQ(verdict(arch, prctl, PR_SET_SECCOMP, SECCOMP_MODE_STRICT), hit(Call::kOwnStrictMode));
    // The back ends use classify(), so it must agree with the filter.
    const auto call = static_cast<std::uint64_t>(seccomp);
    EXPECT_EQ(classify(arch, call, SECCOMP_SET_MODE_STRICT), Call::kOwnStrictMode);
    EXPECT_EQ(classify(arch, call, SECCOMP_SET_MODE_FILTER), Call::kOwnListener);
    EXPECT_EQ(classify(arch, static_cast<std::uint64_t>(prctl), PR_SET_SECCOMP), Call::kOwnStrictMode);
  }
}

TEST(Filter, EveryArgumentDecidesAlone) {
  // Only the arguments that body() checks may change the result.
  for (const std::uint64_t garbage : {std::uint64_t{0}, ~std::uint64_t{0}, std::uint64_t{CLONE_THREAD}}) {
    EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 9, garbage, garbage), hit(Call::kMmap));
    EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 435, garbage, garbage), hit(Call::kFork));  // clone3
    EXPECT_EQ(verdict(AUDIT_ARCH_X86_64, 1, garbage, garbage), SECCOMP_RET_ALLOW);
  }
}

TEST(Filter, AgreesWithClassifyOnEveryCall) {
  for (const auto arch :
       std::initializer_list<std::uint32_t>{AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64}) {
    for (int number = 0; number < 600; ++number) {
      const Call call = classify(arch, static_cast<std::uint64_t>(number), 0);
      if (call == Call::kOwnListener || call == Call::kOwnStrictMode) {
        continue;  // these depend on two arguments
      }
      EXPECT_EQ(verdict(arch, number), call == Call::kNone ? SECCOMP_RET_ALLOW : hit(call))
          << arch << " " << number;
    }
  }
}

TEST(Filter, FitsTheKernelsLimit) { EXPECT_LE(build_filter(kAction).size(), 4096U); }

TEST(Classify, AThreadIsNoProcess) {
  EXPECT_EQ(classify(AUDIT_ARCH_X86_64, 56, CLONE_VM | CLONE_THREAD), Call::kNone);
  EXPECT_EQ(classify(AUDIT_ARCH_I386, 120, CLONE_VM | CLONE_THREAD), Call::kNone);
  EXPECT_EQ(classify(AUDIT_ARCH_I386, 120, CLONE_VM), Call::kFork);
  EXPECT_EQ(classify(AUDIT_ARCH_I386, 56, CLONE_VM), Call::kNone);  // x86_64's clone
  EXPECT_EQ(classify(AUDIT_ARCH_S390X, 90, 0), Call::kNone);
  EXPECT_EQ(classify(AUDIT_ARCH_X86_64, 0x40000009, 0), Call::kMmap);  // x32
}

TEST(Classify, MappingCallsAreTheOnesCounted) {
  EXPECT_TRUE(is_mapping(classify(AUDIT_ARCH_X86_64, 9, 0)));
  EXPECT_TRUE(is_mapping(classify(AUDIT_ARCH_I386, 219, 0)));
  EXPECT_FALSE(is_mapping(classify(AUDIT_ARCH_X86_64, 59, 0)));  // execve
  EXPECT_FALSE(is_mapping(classify(AUDIT_ARCH_X86_64, 30, 0)));  // shmat
}

TEST(WatchedCall, HasItsArgumentsUnlessTheyAreInMemory) {
  const std::array<std::uint64_t, 6> arguments{1, 2, 3, 4, 5, 6};
  const CallArguments call = watched_call(AUDIT_ARCH_X86_64, 9, arguments);
  EXPECT_EQ(call.call, Call::kMmap);
  EXPECT_EQ(call.values, arguments);
  EXPECT_EQ(watched_call(AUDIT_ARCH_I386, 192, arguments).values, arguments);  // mmap2
  const CallArguments in_memory = watched_call(AUDIT_ARCH_I386, 90, arguments);
  EXPECT_EQ(in_memory.call, Call::kMmap);
  EXPECT_EQ(in_memory.values, (std::array<std::uint64_t, 6>{}));
}

}  // namespace
}  // namespace heapwright::meter
