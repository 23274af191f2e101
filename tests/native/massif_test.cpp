// Tests the page multiset and Massif's rules on it, one rule in each test.
// tests/meter/test_massif.py compares the result with Massif itself.
#include "massif.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kBase = 0x7f0000000000;

Massif started() {
  Massif massif(kPage);
  massif.start(2 * kPage, 0x555500000000);
  return massif;
}

// Stack (2 pages), trampolines twice, first brk page.
constexpr std::uint64_t kStart = 5 * kPage;

TEST(PageMultiset, EqualsAPerPageCountOnRandomRanges) {
  PageMultiset set;
  std::map<std::uint64_t, int> model;
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): the same run every time
  for (int step = 0; step < 20000; ++step) {
    const std::uint64_t first = random() % 64;
    const std::uint64_t pages = 1 + random() % 24;
    if (random() % 2 == 0) {
      set.add(first * kPage, pages * kPage);
      for (std::uint64_t page = first; page < first + pages; ++page) {
        ++model[page];
      }
    } else {
      std::uint64_t gone = 0;
      for (std::uint64_t page = first; page < first + pages; ++page) {
        const auto found = model.find(page);
        if (found != model.end()) {
          gone += kPage;
          if (--found->second == 0) {
            model.erase(found);
          }
        }
      }
      ASSERT_EQ(set.remove(first * kPage, pages * kPage), gone);
    }
    std::uint64_t total = 0;
    std::size_t runs = 0;
    std::uint64_t expected_page = 0;
    int previous = 0;
    for (const auto& [page, count] : model) {
      total += static_cast<std::uint64_t>(count) * kPage;
      runs += page != expected_page || count != previous ? 1 : 0;
      expected_page = page + 1;
      previous = count;
    }
    ASSERT_EQ(set.total(), total);
    ASSERT_EQ(set.runs(), runs);
  }
}

TEST(PageMultiset, AHugeReserveIsOneRun) {
  PageMultiset set;
  set.add(kBase, std::uint64_t{64} << 40U);
  EXPECT_EQ(set.runs(), 1U);
  EXPECT_EQ(set.total(), std::uint64_t{64} << 40U);
}

TEST(Massif, StartCountsStackTrampolinesAndBrkPage) {
  Massif massif = started();
  EXPECT_EQ(massif.now(), kStart);
  massif.start_segment(kBase, 3 * kPage);
  EXPECT_EQ(massif.peak(), kStart + 3 * kPage);
}

TEST(Massif, MmapRoundsUp) {
  Massif massif = started();
  massif.mmap(kBase, 1);
  EXPECT_EQ(massif.now(), kStart + kPage);
  massif.munmap(kBase, 1);
  EXPECT_EQ(massif.now(), kStart);
}

TEST(Massif, MapFixedIsCountedAgainAndLeaksOneCopy) {
  Massif massif = started();
  massif.mmap(kBase, 10 * kPage);
  massif.mmap(kBase + 2 * kPage, 4 * kPage);
  EXPECT_EQ(massif.now(), kStart + 14 * kPage);
  massif.munmap(kBase, 10 * kPage);
  EXPECT_EQ(massif.now(), kStart + 4 * kPage);
  EXPECT_EQ(massif.peak(), kStart + 14 * kPage);
}

TEST(Massif, MunmapOfAHoleRemovesWhatIsThere) {
  Massif massif = started();
  massif.mmap(kBase, 10 * kPage);
  massif.munmap(kBase + 3 * kPage, 2 * kPage);
  massif.munmap(kBase, 20 * kPage);
  EXPECT_EQ(massif.now(), kStart);
}

TEST(Massif, BrkCountsItsFirstPageTwice) {
  Massif massif = started();
  massif.brk(0x555500000000 + 1);
  EXPECT_EQ(massif.now(), kStart + kPage);
  massif.brk(0x555500000000 + kPage);
  EXPECT_EQ(massif.now(), kStart + kPage);
  massif.brk(0x555500000000 + kPage + 1);
  EXPECT_EQ(massif.now(), kStart + 2 * kPage);
}

TEST(Massif, AnUnknownBrkIsToldByTheFirstCall) {
  Massif massif(kPage);
  massif.start(kPage, 0);
  const std::uint64_t start = massif.now();
  massif.brk(0x555500000000);
  EXPECT_EQ(massif.now(), start);
  massif.brk(0x555500000000 + 3 * kPage);
  EXPECT_EQ(massif.now(), start + 3 * kPage);
}

TEST(Massif, BrkGrownFromMidPageIsPlacedOnePageLow) {
  Massif massif = started();
  massif.brk(0x555500000000 + kPage / 2);  // the first page, second copy
  massif.brk(0x555500000000 + 3 * kPage);  // two more: first page (third copy) and second
  EXPECT_EQ(massif.now(), kStart + 3 * kPage);
  massif.brk(0x555500000000);  // three pages: the third was never recorded
  EXPECT_EQ(massif.now(), kStart + kPage);
}

TEST(Massif, MremapInPlace) {
  Massif massif = started();
  massif.mmap(kBase, 10 * kPage);
  massif.mremap(kBase, 10 * kPage, kBase, 4 * kPage + 1, false);
  EXPECT_EQ(massif.now(), kStart + 5 * kPage);
  massif.mremap(kBase, 4 * kPage + 1, kBase, 12 * kPage, false);
  EXPECT_EQ(massif.now(), kStart + 12 * kPage);
}

TEST(Massif, MremapMovedRemovesTheOldRangeTwice) {
  Massif massif = started();
  massif.mmap(kBase, 4 * kPage);
  massif.mremap(kBase, 4 * kPage, kBase + 100 * kPage, 6 * kPage, false);
  EXPECT_EQ(massif.now(), kStart + 6 * kPage);
  massif.mmap(kBase, 4 * kPage);
  massif.mmap(kBase, 4 * kPage);
  massif.mremap(kBase, 4 * kPage, kBase + 200 * kPage, 2 * kPage, false);
  // 8 + 6 counted; the copy takes 2 and adds 2, the unmapping takes 4 more.
  EXPECT_EQ(massif.now(), kStart + 10 * kPage);
}

TEST(Massif, MremapThatKeepsTheOldRange) {
  Massif massif = started();
  massif.mmap(kBase, 4 * kPage);
  massif.mremap(kBase, 4 * kPage, kBase + 100 * kPage, 4 * kPage, true);
  EXPECT_EQ(massif.now(), kStart + 8 * kPage);
}

TEST(Massif, SharedMemory) {
  Massif massif = started();
  massif.shmat(kBase, 5 * kPage - 7);
  EXPECT_EQ(massif.now(), kStart + 5 * kPage);
  massif.shmdt(kBase + kPage);  // nothing attached there
  EXPECT_EQ(massif.now(), kStart + 5 * kPage);
  massif.shmdt(kBase);
  EXPECT_EQ(massif.now(), kStart);
}

TEST(Massif, ExecForgetsPagesAndKeepsThePeak) {
  Massif massif = started();
  massif.mmap(kBase, 10 * kPage);
  massif.start(kPage, 0x555500000000);
  EXPECT_EQ(massif.now(), 4 * kPage);
  EXPECT_EQ(massif.peak(), kStart + 10 * kPage);
}

TEST(StartStack, RoundsWhatValgrindLaysOut) {
  StartStack stack;
  stack.arguments = 1;
  stack.auxv_entries = 20;
  EXPECT_EQ(start_stack_bytes(stack, kPage), kPage);
  // 8 x (argc, argv 1 + NULL, envp 1 + NULL) + 16 x 20 = 360; one byte is lost at the end: 3,735
  // are left for strings, rounded to words: 3,728. Valgrind's LD_PRELOAD, 117 bytes with its end,
  // is among them.
  stack.argument_bytes = 3728 - 117;
  EXPECT_EQ(start_stack_bytes(stack, kPage), kPage);
  ++stack.argument_bytes;
  EXPECT_EQ(start_stack_bytes(stack, kPage), 2 * kPage);
}

TEST(StartStack, PrependsToALdPreloadThatIsThere) {
  StartStack stack;
  stack.arguments = 1;
  stack.auxv_entries = 20;
  stack.variables = 1;
  stack.has_ld_preload = true;
  stack.variable_bytes = 3728 - 106;  // neither "LD_PRELOAD=" nor an end to add, but a colon
  EXPECT_EQ(start_stack_bytes(stack, kPage), kPage);
  ++stack.variable_bytes;
  EXPECT_EQ(start_stack_bytes(stack, kPage), 2 * kPage);
}

}  // namespace
}  // namespace heapwright::meter
