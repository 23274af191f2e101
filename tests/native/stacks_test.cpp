// Tests that thread stacks are found by the calls that a thread library makes.
#include "stacks.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kGuard = 4096;
constexpr std::uint64_t kAt = 0x7f0000000000;
constexpr std::uint64_t kGuardInstall = 102;

CallArguments call(Call which, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0,
                   std::uint64_t d = 0) {
  return {.call = which, .values = {a, b, c, d, 0, 0}};
}

CallArguments map_stack(std::uint64_t length) {
  return call(Call::kMmap, 0, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK);
}

TEST(ThreadStacks, GlibcMapsThenOpensTheUpperPart) {
  ThreadStacks stacks;
  stacks.called(1, map_stack(8 * kMiB));
  EXPECT_EQ(stacks.bytes(), 0U);
  stacks.called(1, call(Call::kMprotect, kAt + kGuard, 8 * kMiB - kGuard, PROT_READ | PROT_WRITE));
  EXPECT_EQ(stacks.bytes(), 8 * kMiB - kGuard);
  stacks.called(2, call(Call::kMunmap, kAt, 8 * kMiB));
  stacks.called(2, call(Call::kBrk, 0));
  EXPECT_EQ(stacks.bytes(), 0U);
}

TEST(ThreadStacks, AStackCountsUntilItIsSeenToBeGone) {
  ThreadStacks stacks;
  for (const std::uint64_t at : {kAt, 2 * kAt}) {
    stacks.called(1, map_stack(kMiB));
    stacks.called(1, call(Call::kMprotect, at + kGuard, kMiB - kGuard, PROT_READ | PROT_WRITE));
  }
  stacks.reading(5 * kMiB);
  stacks.called(1, call(Call::kMunmap, kAt, kMiB));
  stacks.reading(5 * kMiB);  // another thread's call came before the munmap took effect
  stacks.called(2, call(Call::kMunmap, 2 * kAt, kMiB));
  EXPECT_EQ(stacks.bytes(), 2 * (kMiB - kGuard));
  stacks.reading(5 * kMiB - (kMiB - kGuard));  // one stack is unmapped, but it is not known which
  stacks.called(1, call(Call::kBrk, 0));
  EXPECT_EQ(stacks.bytes(), kMiB - kGuard);
  stacks.reading(5 * kMiB - 2 * (kMiB - kGuard));
  EXPECT_EQ(stacks.bytes(), 0U);
}

TEST(ThreadStacks, NewerGlibcInstallsAGuardInstead) {
  ThreadStacks stacks;
  stacks.called(1, map_stack(2 * kMiB));
  stacks.called(1, call(Call::kMadvise, kAt, kGuard, kGuardInstall));
  EXPECT_EQ(stacks.bytes(), 2 * kMiB);
}

TEST(ThreadStacks, TheCallAfterMustComeFromTheSameThread) {
  ThreadStacks stacks;
  stacks.called(1, map_stack(2 * kMiB));
  stacks.called(2, call(Call::kMprotect, kAt, kMiB, PROT_READ | PROT_WRITE));
  EXPECT_EQ(stacks.bytes(), 0U);
  stacks.called(1, call(Call::kMprotect, kAt + kGuard, 2 * kMiB - kGuard, PROT_READ | PROT_WRITE));
  EXPECT_EQ(stacks.bytes(), 2 * kMiB - kGuard);
}

TEST(ThreadStacks, OrdinaryMappingsAreNoStacks) {
  ThreadStacks stacks;
  stacks.called(1, call(Call::kMmap, 0, kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  stacks.called(1, call(Call::kMprotect, kAt, kMiB, PROT_READ | PROT_WRITE));
  EXPECT_EQ(stacks.bytes(), 0U);
  stacks.called(1, map_stack(kMiB));
  stacks.called(1, call(Call::kMunmap, kAt, kMiB));  // something else came between
  stacks.called(1, call(Call::kMprotect, kAt, kMiB, PROT_READ | PROT_WRITE));
  EXPECT_EQ(stacks.bytes(), 0U);
}

TEST(ThreadStacks, AStackInTheSamePlaceReplacesTheOld) {
  ThreadStacks stacks;
  for (int round = 0; round < 3; ++round) {
    stacks.called(1, map_stack(kMiB));
    stacks.called(1, call(Call::kMprotect, kAt + kGuard, kMiB - kGuard, PROT_READ | PROT_WRITE));
    EXPECT_EQ(stacks.bytes(), kMiB - kGuard);
  }
}

}  // namespace
}  // namespace heapwright::meter
