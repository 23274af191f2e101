// Tests the freed spans that a heap's depot keeps: the heap uses them again without the region, and
// their memory is bounded as that of the depot's lists.
#include <algorithm>
#include <random>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;
constexpr std::size_t kLongest = Depot<Usual>::kLongestSpan * kSuperblockBytes;

class DepotSpansTest : public HeapTest<Usual> {
 protected:
  DepotSpansTest() {
    Heap<Usual>::become_threaded(pool);
    pool.region.heaps = 2;
  }
  [[nodiscard]] std::size_t used() const { return pool.region.statistics().used_bytes; }
};

TEST_F(DepotSpansTest, AFreedSpanIsReusedAndStaysFreeForStatistics) {
  void* const block = take(kSuperblockBytes);
  EXPECT_EQ(heap.statistics().live_bytes, kSuperblockBytes);
  give(block);
  EXPECT_EQ(used(), kSuperblockBytes) << "the region does not have it";
  EXPECT_EQ(heap.statistics().live_bytes, 0U);
  EXPECT_EQ(heap.usable(block), 0U);
  EXPECT_EQ(take(kSuperblockBytes / 2 + 1), block);
  EXPECT_EQ(heap.usable(block), kSuperblockBytes / 2 + platform::page_size());
  EXPECT_FALSE(heap.is_zero(block));
  EXPECT_NE(take(kSuperblockBytes), block);
}

TEST_F(DepotSpansTest, TheFastPathTakesOnlyASpanOfTheLength) {
  give(take(kSuperblockBytes));
  EXPECT_EQ(heap.allocate_freed_span(2 * kSuperblockBytes), nullptr);
  EXPECT_EQ(heap.allocate_freed_span(SIZE_MAX), nullptr);
  EXPECT_EQ(heap.allocate_freed_span(SIZE_MAX - kSuperblockBytes / 2), nullptr);
  EXPECT_NE(heap.allocate_freed_span(kSuperblockBytes), nullptr);
}

// In all other cases the fast path changes nothing.
TEST_F(DepotSpansTest, TheFastPathFreesOnlyWhatTheDepotTakes) {
  void* const again = take(kSuperblockBytes);
  EXPECT_FALSE(heap.finish_free_fast(FreeResult::kNoBatch, static_cast<char*>(again) + 64));
  EXPECT_TRUE(heap.finish_free_fast(FreeResult::kNoBatch, again));
  EXPECT_FALSE(heap.finish_free_fast(FreeResult::kNoBatch, again)) << "it is free";
  void* const longer = take(kLongest + 1);
  EXPECT_FALSE(heap.finish_free_fast(FreeResult::kNoBatch, longer));
  EXPECT_EQ(take(kSuperblockBytes), again);
  int outside = 0;
  EXPECT_FALSE(heap.finish_free_fast(FreeResult::kSlow, &outside));
}

TEST_F(DepotSpansTest, ASecondFreeIsADoubleFree) {
  void* const block = take(kSuperblockBytes);
  give(block);
  Fault fault{};
  EXPECT_FALSE(heap.free_slow(block, fault));
  EXPECT_EQ(fault, Fault::kDoubleFree);
}

TEST_F(DepotSpansTest, ABurstStaysAndComesBack) {
  for (const std::size_t bytes : {kSuperblockBytes, 5 * kSuperblockBytes}) {
    heap.trim();
    const std::size_t count = kMiB / bytes;
    auto burst = take_all(count, bytes);
    const std::size_t most = used();
    for (int round = 0; round < 10; ++round) {
      give_all(burst);
      EXPECT_EQ(used(), most);
      auto again = take_all(count, bytes);
      std::ranges::sort(again);
      std::ranges::sort(burst);
      EXPECT_EQ(again, burst);
    }
  }
}

TEST_F(DepotSpansTest, OnlySpansUpToTheLongestStay) {
  give(take(kLongest));
  EXPECT_EQ(used(), kLongest);
  give_all(take_all(8, kLongest));  // more than the depot takes: free superblocks hold memory
  void* const longer = take(kLongest + 1);
  ASSERT_TRUE(heap.region().contains(longer));
  const std::size_t before = used();
  give(longer);
  EXPECT_EQ(used(), before - kLongest - kSuperblockBytes);
}

TEST_F(DepotSpansTest, SpansFreedForGoodAreBounded) {
  give_all(take_all(1000, kSuperblockBytes));
  EXPECT_LE(used(), 4 * kMiB) << "a share of the peak's free memory: the limit is not decided each time";
  now_ms += 2 * pool.region.settings.delay_ms;
  give_all(take_all(128, kSuperblockBytes));  // enough for another decision
  EXPECT_LE(used(), 2 * kMiB);
}

TEST_F(DepotSpansTest, SpansOfOtherLengthsReturnBeforeAnotherIsTaken) {
  std::mt19937 random(5);  // NOLINT: the same sequence every time
  std::vector<void*> blocks(50);
  std::size_t live = 0;
  std::vector<std::size_t> lengths(blocks.size());
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t k = random() % blocks.size();
    if (blocks[k] != nullptr) {
      give(blocks[k]);
      live -= lengths[k];
    }
    lengths[k] = (1 + random() % Depot<Usual>::kLongestSpan) * kSuperblockBytes;
    blocks[k] = take(lengths[k]);
    live += lengths[k];
    ASSERT_LE(used(), live + live / 8 + 8 * kMiB) << i;
  }
}

// Threads take turns with bursts of random lengths.
TEST_F(DepotSpansTest, MemoryIsThatOfTheLargestBurstNotOfAll) {
  std::mt19937 random(5);  // NOLINT: the same sequence every time
  Heap<Usual> second{pool, 1};
  Heap<Usual> third{pool, 2};
  Heap<Usual> fourth{pool, 3};
  pool.region.heaps = 4;
  constexpr std::size_t kBurst = 32 * kMiB;
  for (int round = 0; round < 40; ++round) {
    for (Heap<Usual>* user : {&heap, &second, &third, &fourth}) {
      std::vector<void*> blocks;
      for (std::size_t bytes = 0; bytes < kBurst; bytes += user->usable(blocks.back())) {
        blocks.push_back(user->allocate_slow((1 + random() % Depot<Usual>::kLongestSpan) * kSuperblockBytes));
        const Region::Statistics now = pool.region.statistics();
        ASSERT_LE(now.used_bytes + now.dirty_bytes, kBurst / 4 * 5 + 4 * kMiB) << round;
      }
      for (void* const block : blocks) {
        Fault fault{};
        ASSERT_TRUE(user->free_slow(block, fault));
      }
      now_ms += 1;
    }
  }
}

TEST_F(DepotSpansTest, SpansOfAllDepotsMakeRoomUnderALimit) {
  pool.region.settings.limit_bytes = 2 * kChunkBytes;
  Heap<Usual> other{pool, 1};
  give_all(take_all(500, 1000));  // with these lists, a trim without that return makes too little room
  give_all(take_all(50, kSuperblockBytes));
  give_all(take_all(50, kSuperblockBytes));
  EXPECT_GT(used(), kMiB);
  std::vector<void*> blocks(6);
  std::ranges::generate(blocks, [&] { return other.allocate_slow(kLongest); });
  EXPECT_EQ(std::ranges::count(blocks, nullptr), 0) << "three fit in each chunk";
}

TEST_F(DepotSpansTest, TheRegionKnowsWhatItLends) {
  EXPECT_FALSE(pool.region.lends());
  const auto blocks = take_all(32, kSuperblockBytes);
  give_all(blocks);
  EXPECT_TRUE(pool.region.lends());
  EXPECT_LE(pool.region.lent.superblocks, 32);
  heap.trim();
  EXPECT_LE(pool.region.lent.superblocks, 0);
}

// The child's copy of a depot that another thread was emptying.
TEST_F(DepotSpansTest, AChildOfForkCountsThemAgain) {
  give_all(take_all(32, kSuperblockBytes));
  const std::size_t kept = used();
  pool.region.lent.superblocks -= 5;
  pool.forget_other_heaps();
  heap.keep_in_child();
  EXPECT_EQ(static_cast<std::size_t>(pool.region.lent.superblocks) * kSuperblockBytes, kept);
  heap.trim();
  EXPECT_EQ(used(), 0U);
  EXPECT_EQ(pool.region.lent.superblocks, 0);
}

TEST_F(DepotSpansTest, AThreadThatOnlyFreesKeepsNone) {
  Heap<Usual> consumer{pool, 1};
  const auto blocks = take_all(10, kSuperblockBytes);
  for (void* const block : blocks) {
    Fault fault{};
    ASSERT_TRUE(consumer.free_slow(block, fault));
  }
  EXPECT_EQ(used(), 0U);
}

TEST_F(DepotSpansTest, ASpanThatHasGrownStays) {
  void* const block = take(kSuperblockBytes);
  ASSERT_EQ(heap.resize(block, 5 * kSuperblockBytes), block);
  give(block);
  EXPECT_EQ(used(), 5 * kSuperblockBytes) << "the region does not have it";
}

TEST_F(DepotSpansTest, ATrimOrTheEndOfTheThreadReturnsAll) {
  give(take(kSuperblockBytes));
  EXPECT_TRUE(heap.trim());
  EXPECT_EQ(used(), 0U);
  give(take(kSuperblockBytes));
  heap.on_thread_exit();
  EXPECT_EQ(used(), 0U);
}

TEST_F(DepotSpansTest, AnotherHeapCanReturnThemInATrim) {
  Heap<Usual> other{pool, 1};
  give(take(kSuperblockBytes));
  EXPECT_EQ(used(), kSuperblockBytes);
  other.trim();
  EXPECT_EQ(used(), 0U);
  EXPECT_NE(take(kSuperblockBytes), nullptr);
}

}  // namespace
}  // namespace heapwright::alloc::test
