// Tests the page purger alone, on one superblock: which pages it purges, when, and which blocks it
// finds again.
#include "core/page_purger.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "core/carving.h"
#include "platform/platform.h"
#include "support.h"

namespace heapwright::alloc::test {
namespace {

constexpr std::size_t kPage = kSuperblockBytes / 16;

class PagePurgerTest : public testing::Test {
 protected:
  PagePurgerTest() {
    now_ms = 1'000'000;
    pool.region.settings.clock = test_clock;
    pool.region.settings.huge_pages = platform::HugePageMode::kNever;
    pool.region.settings.keep_bytes = 0;
  }
  ~PagePurgerTest() override { abandon(pool.region); }

  // A superblock all of whose blocks are carved, written to and allocated.
  void begin(std::size_t size, std::size_t colours = 1) {
    superblock = pool.region.take(1);
    describe_superblock(superblock, Usual::kClassesPerDoubling, size, colours);
    superblock->purged_pages = 0;
    while (superblock->carved < superblock->capacity) {
      carve<Usual>(pool, superblock, 64);
    }
    std::memset(memory_of(superblock), 1, kSuperblockBytes);
  }
  Block* block(std::size_t i) const {
    return reinterpret_cast<Block*>(memory_of(superblock) + superblock->first + i * superblock->size);
  }
  // Frees the blocks with these numbers, from `first` to before `end`.
  void free(std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) {
      block(i)->next = superblock->free;
      superblock->free = block(i);
      ++superblock->free_count;
    }
  }
  // Begins a superblock of which three quarters have just become free.
  void begin_three_quarters_free() {
    begin(1024);
    free(0, 48);
    purger.after_frees(superblock, 47);
  }
  [[nodiscard]] std::set<const Block*> listed() const {
    std::set<const Block*> found;
    for (const Block* one = superblock->free; one != nullptr; one = one->next) {
      found.insert(one);
    }
    return found;
  }
  [[nodiscard]] std::size_t in_memory() const {
    return resident(memory_of(superblock), kSuperblockBytes).value_or(0);
  }

  // Larger pages are fewer, so that the masks below are other ones.
  static bool pages_are_larger() { return platform::page_size() > kPage; }

  Pool pool;
  PagePurger<Usual> purger{pool};
  Superblock* superblock = nullptr;
};

TEST_F(PagePurgerTest, OnlyWhollyFreePagesArePurged) {
  if (pages_are_larger()) {
    GTEST_SKIP() << "its pages are of 4 KiB";
  }
  begin(1024);
  free(2, 12);  // half of page 0, pages 1 and 2
  purger.purge(superblock);
  EXPECT_EQ(superblock->purged_pages, 0b110);
  EXPECT_EQ(in_memory(), kSuperblockBytes - 2 * kPage);
  EXPECT_EQ(listed(), (std::set<const Block*>{block(2), block(3)}));
  EXPECT_EQ(superblock->free_count, 10U) << "blocks on purged pages count as free";
}

TEST_F(PagePurgerTest, ABlockThatReachesIntoAPurgedPageLeavesTheList) {
  if (pages_are_larger()) {
    GTEST_SKIP() << "its pages are of 4 KiB";
  }
  begin(3072);
  free(1, 4);  // 3072 to 12288: pages 1 and 2, and the end of page 0
  purger.purge(superblock);
  EXPECT_EQ(superblock->purged_pages, 0b110);
  EXPECT_TRUE(listed().empty());
}

// The block between two pages is in no list after the first purge.
TEST_F(PagePurgerTest, ALaterPurgeCountsBlocksThatReachIntoPurgedPages) {
  if (pages_are_larger()) {
    GTEST_SKIP() << "its pages are of 4 KiB";
  }
  begin(3072);
  free(1, 4);
  purger.purge(superblock);
  free(0, 1);
  free(4, 6);  // 12288 to 18432: page 3
  purger.purge(superblock);
  EXPECT_EQ(superblock->purged_pages, 0b1111);
  EXPECT_EQ(in_memory(), kSuperblockBytes - 4 * kPage);
  EXPECT_TRUE(listed().empty()) << "the last one reaches into page 3";
}

TEST_F(PagePurgerTest, TheEndsOfAShiftedSuperblockArePurgedToo) {
  if (pages_are_larger()) {
    GTEST_SKIP() << "its pages are of 4 KiB";
  }
  begin(1024, 16);
  ASSERT_NE(superblock->first, 0);
  free(0, 8);
  free(superblock->capacity - 4, superblock->capacity);
  purger.purge(superblock);
  EXPECT_EQ(superblock->purged_pages, 0b1000'0000'0000'0011);
}

TEST_F(PagePurgerTest, ReuseFindsEveryBlockAgain) {
  if (platform::page_size() >= kSuperblockBytes) {
    GTEST_SKIP() << "a superblock is one page";
  }
  for (const auto& [size, colours] : {std::pair<std::size_t, std::size_t>{256, 1},
                                      {256, 4},
                                      {1024, 1},
                                      {1024, 16},
                                      {1536, 8},
                                      {2048, 32},
                                      {3072, 1},
                                      {5120, 1},
                                      {10240, 1}}) {
    begin(size, colours);
    const std::size_t count = superblock->capacity;
    free(1, count);
    purger.purge(superblock);
    ASSERT_NE(superblock->purged_pages, 0) << size;
    std::set<const Block*> found;
    while (superblock->free != nullptr || superblock->purged_pages != 0) {
      purger.reuse(superblock);
      for (const Block* const one : listed()) {
        ASSERT_TRUE(found.insert(one).second) << "found twice";
      }
      superblock->free = nullptr;
    }
    EXPECT_EQ(found.size(), count - 1) << size;
    EXPECT_TRUE(std::ranges::all_of(found, [&](const Block* one) { return begins_block(superblock, one); }))
        << size;
    EXPECT_EQ(found.count(block(0)), 0U) << "it is allocated";
  }
}

TEST_F(PagePurgerTest, ASuperblockWaitsFromThreeQuartersOnAndAgainFromSevenEighths) {
  if (pages_are_larger()) {
    GTEST_SKIP() << "its pages are of 4 KiB";
  }
  begin(1024);
  purger.add_idle(100 * kSuperblockBytes);
  free(0, 47);
  purger.after_frees(superblock, 40);
  purger.purge_waiting();
  EXPECT_EQ(superblock->purged_pages, 0);
  free(47, 48);
  purger.after_frees(superblock, 47);
  EXPECT_EQ(superblock->purged_pages, 0) << "it waits";
  purger.purge_waiting();
  EXPECT_EQ(superblock->purged_pages, 0xfff);
  free(48, 52);
  purger.after_frees(superblock, 48);
  purger.purge_waiting();
  EXPECT_EQ(superblock->purged_pages, 0xfff) << "no threshold between";
  free(52, 56);
  purger.after_frees(superblock, 52);
  purger.purge_waiting();
  EXPECT_EQ(superblock->purged_pages, 0x3fff);
}

TEST_F(PagePurgerTest, TheSeventeenthSuperblockEndsTheWaitOfTheFirst) {
  purger.add_idle(100 * kSuperblockBytes);
  std::vector<Superblock*> waiting;
  const auto add = [&] {
    begin_three_quarters_free();
    free(48, 56);
    purger.after_frees(superblock, 55);  // it waits already: not twice
    waiting.push_back(superblock);
  };
  const auto purged = [&] {
    return std::ranges::count_if(waiting, [](const Superblock* one) { return one->purged_pages != 0; });
  };
  for (int i = 0; i < 16; ++i) {
    add();
  }
  EXPECT_EQ(purged(), 0);
  add();
  EXPECT_EQ(purged(), 1);
  EXPECT_NE(waiting.front()->purged_pages, 0);
}

TEST_F(PagePurgerTest, WithManyHeapsFewerSuperblocksWaitInEach) {
  purger.add_idle(1000 * kSuperblockBytes);
  std::vector<Superblock*> waiting;
  const auto add = [&] {
    begin_three_quarters_free();
    waiting.push_back(superblock);
  };
  const auto unpurged = [&] {
    return std::ranges::count_if(waiting, [](const Superblock* one) { return one->purged_pages == 0; });
  };
  for (int i = 0; i < 16; ++i) {
    add();
  }
  EXPECT_EQ(unpurged(), 16);
  pool.region.heaps = 16;
  add();
  EXPECT_EQ(unpurged(), 4);
  pool.region.heaps = 1000;
  add();
  EXPECT_EQ(unpurged(), 1);
  EXPECT_EQ(waiting.back()->purged_pages, 0) << "it may become wholly free soon";
}

TEST_F(PagePurgerTest, AForgottenSuperblockIsNotPurged) {
  purger.add_idle(100 * kSuperblockBytes);
  begin_three_quarters_free();
  const Superblock* const forgotten = superblock;
  begin_three_quarters_free();
  purger.forget(forgotten);
  purger.purge_waiting();
  EXPECT_EQ(forgotten->purged_pages, 0);
  EXPECT_NE(superblock->purged_pages, 0);
}

TEST_F(PagePurgerTest, ACurrentSuperblockDoesNotWait) {
  purger.add_idle(100 * kSuperblockBytes);
  begin(1024);
  superblock->current = true;
  free(0, 48);
  purger.after_frees(superblock, 47);
  purger.purge_waiting();
  EXPECT_EQ(superblock->purged_pages, 0);
}

TEST_F(PagePurgerTest, LittleIdleMemoryIsKept) {
  begin(1024);
  pool.region.settings.keep_bytes = 1 << 20;
  purger.add_idle(1 << 20);
  free(0, 48);
  purger.after_frees(superblock, 47);
  purger.add_idle(100 * kSuperblockBytes);  // too late
  purger.purge_waiting();
  EXPECT_EQ(superblock->purged_pages, 0);
}

TEST_F(PagePurgerTest, MemoryIsKeptIfItIsLittleAtTheEndOfTheWait) {
  begin(1024);
  purger.add_idle(100 * kSuperblockBytes);
  free(0, 48);
  purger.after_frees(superblock, 47);
  purger.remove_idle(100 * kSuperblockBytes);
  purger.purge_waiting();
  EXPECT_EQ(superblock->purged_pages, 0);
}

// Each of the region's free superblocks has 12 purged pages, which cost page faults when it is used again.
TEST_F(PagePurgerTest, PurgedPagesOfAFreeSuperblockWerePurgedPrematurelyIfItIsUsedAgain) {
  pool.region.settings.keep_bytes = 10 * kSuperblockBytes;
  for (int i = 0; i < 2; ++i) {
    begin(4096);
    free(0, 12);
    purger.purge(superblock);
  }
  pool.region.give(superblock - 1, 2);
  ASSERT_TRUE(pool.region.may_purge());
  ASSERT_NE(pool.region.take(1), nullptr);
  EXPECT_TRUE(pool.region.may_purge()) << "less than a superblock is not paid for yet";
  ASSERT_NE(pool.region.take(1), nullptr);
  EXPECT_FALSE(pool.region.may_purge());
  now_ms += PrematurePurges::kMsPerSuperblock;
  EXPECT_TRUE(pool.region.may_purge());
}

TEST_F(PagePurgerTest, NoPageIsPurgedTwice) {
  begin(4096);
  free(0, 12);
  purger.purge(superblock);
  pool.region.give(superblock, 1);
  ASSERT_EQ(pool.region.statistics().dirty_bytes, 0U) << "no free memory may be kept here";
  EXPECT_EQ(pool.region.statistics().purged_bytes, kSuperblockBytes);
}

TEST_F(PagePurgerTest, SmallBlocksAreLeftAlone) {
  begin(128);
  purger.add_idle(100 * kSuperblockBytes);
  free(0, 384);
  purger.after_frees(superblock, 383);
  purger.purge_waiting();
  EXPECT_EQ(superblock->purged_pages, 0);
}

}  // namespace
}  // namespace heapwright::alloc::test
