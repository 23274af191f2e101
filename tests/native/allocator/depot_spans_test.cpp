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
  std::vector<void*> take_all(std::size_t count, std::size_t bytes) {
    std::vector<void*> blocks(count);
    std::ranges::generate(blocks, [&] { return take(bytes); });
    return blocks;
  }
  void give_all(const std::vector<void*>& blocks) {
    std::ranges::for_each(blocks, [&](void* block) { give(block); });
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
  const auto blocks = take_all(1000, kSuperblockBytes);
  give_all(blocks);
  EXPECT_LE(used(), 5 * kMiB / 2) << "a little more than the share: the limit is not decided each time";
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
    // The eighth, and a span of each length that has been freed since.
    ASSERT_LE(used(), live + live / 8 + 8 * kMiB) << i;
  }
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

TEST_F(DepotSpansTest, AHeapThatNeedsMemoryTakesThoseOfAnIdleHeap) {
  Heap<Usual> other{pool, 1};
  give_all(take_all(16, kSuperblockBytes));
  const std::size_t most = used();
  ASSERT_NE(other.allocate_slow(kLongest), nullptr);
  ASSERT_NE(other.allocate_slow(kLongest), nullptr);  // the first look has seen the depot move
  EXPECT_LE(used(), most + kLongest);
}

TEST_F(DepotSpansTest, AHeapThatTakesOverHasTheSpans) {
  void* const block = take(kSuperblockBytes);
  give(block);
  Heap<Usual> next{pool, 1};
  next.take_over(heap);
  EXPECT_EQ(next.allocate_slow(kSuperblockBytes), block);
  EXPECT_NE(heap.allocate_slow(kSuperblockBytes), block);
}

}  // namespace
}  // namespace heapwright::alloc::test
