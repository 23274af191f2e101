// Tests blocks with mappings of their own, and the table of them.
#include "core/large.h"

#include <sys/mman.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "support.h"

namespace heapwright::alloc {
namespace {

class LargeTest : public testing::Test {
 protected:
  ~LargeTest() override {
    for (void* const block : blocks) {
      EXPECT_TRUE(large.free(block));
    }
    EXPECT_EQ(large.count(), 0U);
    EXPECT_EQ(large.bytes(), 0U);
  }
  Large large;
  std::vector<void*> blocks;
  const std::size_t page = platform::page_size();
};

TEST_F(LargeTest, KnowsNothingAtFirst) {
  int here = 0;
  EXPECT_EQ(large.usable(&here), 0U);
  EXPECT_EQ(large.usable(nullptr), 0U);
  EXPECT_FALSE(large.free(&here));
  EXPECT_FALSE(large.free(nullptr));
  EXPECT_EQ(large.resize(&here, 10), nullptr);
}

TEST_F(LargeTest, ABlockIsZeroedPagesAndIsKeptForAWhileWhenFreed) {
  void* const block = large.allocate(page * 300 + 1, 1);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(large.usable(block), 301 * page);
  EXPECT_EQ(large.bytes(), 301 * page);
  EXPECT_EQ(test::resident(block, 301 * page), 0U);
  EXPECT_EQ(large.usable(static_cast<char*>(block) + page), 0U) << "inside is no block";
  EXPECT_FALSE(large.free(static_cast<char*>(block) + page));
  std::memset(block, 1, 301 * page);
  EXPECT_EQ(test::resident(block, 301 * page), 301 * page);
  EXPECT_TRUE(large.free(block));
  EXPECT_FALSE(large.free(block)) << "twice";
  EXPECT_EQ(large.usable(block), 0U);
  EXPECT_EQ(large.kept_bytes(), 301 * page);
  EXPECT_EQ(large.drop_oldest(), 301 * page);
  EXPECT_EQ(test::resident(block, 301 * page), std::nullopt);
  EXPECT_EQ(large.drop_oldest(), 0U);
}

TEST_F(LargeTest, WhatIsKeptIsUsedAgain) {
  auto* const block = static_cast<char*>(large.allocate(page * 300, 1));
  EXPECT_TRUE(large.last_was_clean());
  std::memset(block, 1, page * 300);
  EXPECT_EQ(large.last_new_bytes(), page * 300);
  large.free(block);
  void* const again = large.allocate(page * 300, 1);
  EXPECT_EQ(again, block);
  EXPECT_FALSE(large.last_was_clean());
  EXPECT_EQ(large.last_new_bytes(), 0U);
  EXPECT_EQ(large.kept_bytes(), 0U);
  large.free(again);
  blocks = {large.allocate(page * 400, 1)};
  EXPECT_EQ(large.last_new_bytes(), page * 100) << "it grew";
}

TEST_F(LargeTest, ABlockThatShrinksKeepsTheRestToGrowAgain) {
  auto* const block = static_cast<char*>(large.allocate(page * 300, 1));
  std::memset(block, 1, page * 300);
  EXPECT_EQ(large.resize(block, page * 100), block);
  EXPECT_EQ(large.bytes(), page * 100);
  EXPECT_EQ(large.kept_bytes(), page * 200);
  EXPECT_EQ(large.resize(block, page * 300), block);
  EXPECT_EQ(large.kept_bytes(), 0U);
  EXPECT_EQ(test::resident(block, 300 * page), 300 * page);
  blocks = {block};
}

TEST_F(LargeTest, AnAlignedBlockUsesTheKeptRangeOfTheLast) {
  auto* const first = static_cast<char*>(large.allocate(page * 300, 64 * page));
  std::memset(first, 1, page * 300);
  large.free(first);
  EXPECT_EQ(large.allocate(page * 300, 64 * page), first);
  EXPECT_EQ(first[0], 1) << "without new page faults";
  large.free(first);
  for (const std::size_t alignment : {std::size_t{1} << 26U, std::size_t{1} << 28U, std::size_t{1} << 30U}) {
    void* const block = large.allocate(page * 300, alignment);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U);
    large.free(block);
  }
}

TEST_F(LargeTest, AnAlignedBlockLeavesThePartsBeforeAndBehindIt) {
  const std::size_t alignment = 256 * page;
  auto* const whole = static_cast<char*>(large.allocate(page * 1000, alignment));
  auto* const first = whole + page;  // so that the range is not aligned
  large.free(whole);
  ASSERT_EQ(large.allocate(page, alignment), whole);
  auto* const block = static_cast<char*>(large.allocate(page * 300, alignment));
  EXPECT_EQ(block, whole + alignment);
  EXPECT_EQ(large.last_new_bytes(), 0U);
  EXPECT_EQ(large.kept_bytes(), 699 * page);
  EXPECT_EQ(large.allocate(page * 255, 1), first) << "the part before it";
  blocks = {whole, block, first};
}

TEST_F(LargeTest, RangesThatTouchAreJoined) {
  auto* const whole = static_cast<char*>(large.allocate(page * 900, 1));
  large.free(whole);
  std::vector<void*> parts;
  for (int i = 0; i < 3; ++i) {
    parts.push_back(large.allocate(page * 300, 1));
    ASSERT_EQ(parts.back(), whole + i * 300 * page);
  }
  for (const int i : {0, 2, 1}) {
    large.free(parts[i]);
  }
  EXPECT_EQ(large.allocate(page * 900, 1), whole);
  EXPECT_EQ(large.kept_bytes(), 0U);
  blocks = {whole};
}

TEST_F(LargeTest, TheEndOfTheOldestRangeIsDroppedFirst) {
  auto* const whole = static_cast<char*>(large.allocate(page * 300, 1));
  std::memset(whole, 1, page * 300);
  large.free(whole);
  EXPECT_EQ(large.drop_oldest(page * 100), page * 100);
  EXPECT_EQ(test::resident(whole, page * 200), page * 200);
  EXPECT_EQ(test::resident(whole + page * 200, page * 100), std::nullopt);
  EXPECT_EQ(large.drop_oldest(page * 300), page * 200);
  EXPECT_EQ(large.kept_bytes(), 0U);
}

// The program may have advised the kernel differently about a part. The kernel then moves no range
// that has it, and it must not be kept for ever.
TEST_F(LargeTest, ARangeThatCannotGrowIsNotKept) {
  auto* const block = static_cast<char*>(large.allocate(page * 300, 1));
  ASSERT_EQ(madvise(block + page * 100, page * 100, MADV_DONTFORK), 0);
  large.free(block);
  blocks = {large.allocate(page * 400, 1)};
  ASSERT_NE(blocks[0], nullptr);
  EXPECT_EQ(large.usable(blocks[0]), page * 400);
  EXPECT_EQ(large.kept_bytes(), 0U);
}

TEST_F(LargeTest, TheRestOfADividedRangeJoinsItAgain) {
  auto* const whole = static_cast<char*>(large.allocate(page * 300, 1));
  std::memset(whole, 1, page * 300);
  large.free(whole);
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(large.allocate(page * 200, 1), whole);
    ASSERT_EQ(large.kept_bytes(), 100 * page);
    ASSERT_EQ(large.bytes(), 200 * page);
    large.free(whole);
    ASSERT_EQ(large.kept_bytes(), 300 * page);
    ASSERT_EQ(large.allocate(page * 300, 1), whole);
    ASSERT_EQ(large.kept_bytes(), 0U);
    ASSERT_EQ(test::resident(whole, 300 * page), 300 * page) << "nothing is touched anew";
    large.free(whole);
  }
  EXPECT_EQ(large.drop_oldest(), 300 * page) << "one mapping";
}

TEST_F(LargeTest, ABlockGrowsIntoTheRangeBehindIt) {
  auto* const whole = static_cast<char*>(large.allocate(page * 300, 1));
  std::memset(whole, 1, page * 300);
  large.free(whole);
  ASSERT_EQ(large.allocate(page * 200, 1), whole);
  EXPECT_EQ(large.resize(whole, page * 250), whole);
  EXPECT_EQ(large.kept_bytes(), 50 * page);
  EXPECT_EQ(test::resident(whole, 250 * page), 250 * page);
  EXPECT_EQ(large.resize(whole, page * 300), whole);
  EXPECT_EQ(large.kept_bytes(), 0U);
  auto* const moved = static_cast<char*>(large.resize(whole, page * 400));
  EXPECT_EQ(test::resident(moved, 400 * page), 300 * page) << "with all of its pages";
  blocks = {moved};
}

TEST_F(LargeTest, ABlockTakesARangeThatIsTooShortAlong) {
  auto* const whole = static_cast<char*>(large.allocate(page * 300, 1));
  std::memset(whole, 1, page * 300);
  large.free(whole);
  ASSERT_EQ(large.allocate(page * 200, 1), whole);
  EXPECT_EQ(large.resize(whole, std::size_t{1} << 60U), nullptr);
  EXPECT_EQ(large.kept_bytes(), 100 * page) << "no room: nothing has changed";
  auto* const moved = static_cast<char*>(large.resize(whole, page * 1000));
  EXPECT_EQ(large.kept_bytes(), 0U);
  EXPECT_EQ(test::resident(moved, 1000 * page), 300 * page);
  blocks = {moved};
}

// Blocks beside kept ranges, resized and freed in any order, never overlap.
TEST_F(LargeTest, RandomSizesKeepBlocksApart) {
  struct Live {
    unsigned char* block;
    std::size_t bytes;
    unsigned char mark;
  };
  std::vector<Live> live;
  std::mt19937 random(3);  // NOLINT: the same sequence every time
  const auto check = [&](const Live& one) {
    for (std::size_t at = 0; at < one.bytes; at += page) {
      ASSERT_EQ(one.block[at], one.mark);
    }
  };
  for (int i = 0; i < 4000; ++i) {
    const std::size_t bytes = page * (1 + random() % 64);
    const auto mark = static_cast<unsigned char>(i);
    const std::size_t chosen = live.empty() ? 0 : random() % live.size();
    if (live.size() < 6 || random() % 3 == 0) {
      const std::size_t alignment = random() % 4 == 0 ? 32 * page : 1;
      auto* const block = static_cast<unsigned char*>(large.allocate(bytes, alignment));
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U);
      live.push_back({block, large.usable(block), mark});
      std::memset(block, mark, live.back().bytes);
    } else if (random() % 2 == 0) {
      Live& one = live[chosen];
      check(one);
      one.block = static_cast<unsigned char*>(large.resize(one.block, bytes));
      ASSERT_NE(one.block, nullptr) << "ranges of several mappings of the kernel were joined";
      one.bytes = std::min(one.bytes, bytes);
      check(one);
      one.bytes = large.usable(one.block);
      std::memset(one.block, one.mark, one.bytes);
    } else {
      check(live[chosen]);
      ASSERT_TRUE(large.free(live[chosen].block));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    if (random() % 50 == 0) {
      large.drop_oldest(page * (1 + random() % 128));
    }
  }
  for (const Live& one : live) {
    check(one);
    blocks.push_back(one.block);
  }
}

TEST_F(LargeTest, FewAreKept) {
  for (int i = 0; i < 400; ++i) {
    blocks.push_back(large.allocate(page * 10, 1));
  }
  for (const std::size_t odd : {0, 1}) {
    for (std::size_t i = odd; i < blocks.size(); i += 2) {
      large.free(blocks[i]);
      ASSERT_TRUE(odd == 1 || large.kept_bytes() <= 64 * 10 * page) << "no two of them touch";
    }
  }
  std::size_t dropped = 0;
  for (std::size_t bytes = large.drop_oldest(); bytes != 0; bytes = large.drop_oldest()) {
    dropped += bytes;
  }
  EXPECT_GT(dropped, 0U);
  EXPECT_EQ(large.kept_bytes(), 0U);
  for (void* const block : blocks) {
    EXPECT_EQ(test::resident(block, page), std::nullopt);
  }
  blocks.clear();
}

TEST_F(LargeTest, TheCallerMayUnmapAVeryLargeBlock) {
  const std::size_t bytes = std::size_t{257} << 20U;  // more than is kept
  void* const block = large.allocate(bytes, 1);
  std::memset(block, 1, page);
  Large::Mapping rest{};
  EXPECT_TRUE(large.free(block, 0, &rest));
  EXPECT_EQ(rest.address, block);
  EXPECT_EQ(rest.bytes, bytes);
  EXPECT_EQ(large.mapped_bytes(), 0U);
  EXPECT_EQ(test::resident(block, page), page) << "it is still mapped";
  Large::unmap(rest);
  EXPECT_EQ(test::resident(block, page), std::nullopt);
}

TEST_F(LargeTest, NoBytesAreAPage) {
  blocks.push_back(large.allocate(0, 1));
  EXPECT_EQ(large.usable(blocks[0]), page);
}

TEST_F(LargeTest, AlignmentsLeaveNothingBehind) {
  for (std::size_t alignment = 1; alignment <= std::size_t{1} << 30U; alignment *= 2) {
    void* const block = large.allocate(page * 5, alignment);
    ASSERT_NE(block, nullptr) << alignment;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U);
    EXPECT_EQ(large.usable(block), 5 * page);
    std::memset(block, 1, 5 * page);
    EXPECT_TRUE(large.free(block));
    EXPECT_EQ(large.drop_oldest(), 5 * page);
    EXPECT_EQ(test::resident(block, page), std::nullopt);
  }
}

TEST_F(LargeTest, TooMuchIsRefused) {
  EXPECT_EQ(large.allocate(std::size_t{1} << 60U, 1), nullptr);
  EXPECT_EQ(large.allocate(page, std::size_t{1} << 62U), nullptr);
  void* const block = large.allocate(page, 1);
  blocks.push_back(block);
  EXPECT_EQ(large.resize(block, std::size_t{1} << 60U), nullptr);
  EXPECT_EQ(large.usable(block), page) << "and nothing has changed";
}

TEST_F(LargeTest, ResizingKeepsTheContentsAndTheCount) {
  auto* block = static_cast<unsigned char*>(large.allocate(page, 1));
  std::mt19937 random(1);  // NOLINT: the same sequence every time
  std::size_t bytes = page;
  std::memset(block, 7, bytes);
  for (int i = 0; i < 200; ++i) {
    const std::size_t wanted = 1 + random() % (page * 600);
    block = static_cast<unsigned char*>(large.resize(block, wanted));
    ASSERT_NE(block, nullptr);
    const std::size_t now = large.usable(block);
    ASSERT_EQ(now, round_up(wanted, page));
    ASSERT_EQ(large.bytes(), now);
    ASSERT_EQ(large.count(), 1U);
    for (std::size_t at = 0; at < std::min(now, bytes); at += page / 2) {
      ASSERT_EQ(block[at], 7);
    }
    std::memset(block, 7, now);
    bytes = now;
  }
  blocks.push_back(block);
}

// Thousands of entries, erased in every order: each stays to be found, and nothing else is.
TEST_F(LargeTest, TheTableFindsWhatIsThereAndNothingElse) {
  std::mt19937 random(2);  // NOLINT: the same sequence every time
  std::map<void*, std::size_t> model;
  std::vector<void*> gone;
  const auto check = [&] {
    ASSERT_EQ(large.count(), model.size());
    std::size_t bytes = 0;
    for (const auto& [block, size] : model) {
      ASSERT_EQ(large.usable(block), size);
      bytes += size;
    }
    ASSERT_EQ(large.bytes(), bytes);
    for (void* const block : gone) {
      ASSERT_TRUE(model.contains(block) || large.usable(block) == 0);
    }
  };
  // More, then fewer, then as many: tables of every filling.
  for (const auto& [steps, percent] : {std::pair{6000, 75}, std::pair{6000, 30}, std::pair{6000, 50}}) {
    for (int step = 0; step < steps; ++step) {
      if (model.empty() || static_cast<int>(random() % 100) < percent) {
        const std::size_t size = page * (1 + random() % 3);
        void* const block = large.allocate(size, 1);
        ASSERT_NE(block, nullptr);
        ASSERT_TRUE(model.emplace(block, size).second);
      } else {
        auto it = model.lower_bound(
            reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(model.begin()->first) +
                                    random() % (reinterpret_cast<std::uintptr_t>(model.rbegin()->first) -
                                                reinterpret_cast<std::uintptr_t>(model.begin()->first) + 1)));
        ASSERT_TRUE(large.free(it->first));
        gone.push_back(it->first);
        model.erase(it);
      }
      if (step % 500 == 0) {
        check();
      }
    }
    check();
  }
  for (const auto& [block, size] : model) {
    blocks.push_back(block);
  }
}
TEST_F(LargeTest, GuardedBlocksKeepTheirAddressesForAWhile) {
  large.guards = true;
  std::vector<void*> freed;
  for (int i = 0; i < 40; ++i) {
    void* const block = large.allocate(10 * page, 1);
    ASSERT_NE(block, nullptr);
    if (!freed.empty()) {
      EXPECT_NE(block, freed.back()) << "the newest waits";
    }
    ASSERT_TRUE(large.free(block, 12345));
    EXPECT_FALSE(large.free(block, 12345)) << "it is no block any more";
    freed.push_back(block);
  }
  large.empty_quarantine();
}

}  // namespace
}  // namespace heapwright::alloc
