// Tests the spans that a heap keeps: it reuses them without the region, bounds them, and returns
// them to the region on demand.
#include "core/span_cache.h"

#include <set>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

constexpr std::size_t kSpanBytes = kSuperblockBytes;

class SpanCacheTest : public testing::Test {
 protected:
  SpanCacheTest() { Heap<Usual>::become_threaded(pool); }
  ~SpanCacheTest() override { abandon(pool.region); }
  void* allocate(std::size_t bytes) { return heap.allocate_slow(bytes); }
  void free(void* block) {
    Fault fault{};
    ASSERT_TRUE(heap.free_slow(block, fault));
  }
  [[nodiscard]] std::size_t used() const { return pool.region.statistics().used_bytes; }

  Pool pool;
  Heap<Usual> heap{pool};
};

TEST_F(SpanCacheTest, AFreedSpanIsReusedAndStaysFreeForStatistics) {
  void* const block = allocate(kSpanBytes);
  EXPECT_EQ(heap.statistics().live_bytes, kSpanBytes);
  free(block);
  EXPECT_EQ(used(), kSpanBytes) << "the region does not have it";
  EXPECT_EQ(heap.statistics().live_bytes, 0U);
  EXPECT_EQ(heap.usable(block), 0U);
  EXPECT_EQ(allocate(kSpanBytes / 2 + 1), block);
  EXPECT_EQ(heap.usable(block), kSpanBytes / 2 + platform::page_size());
  EXPECT_FALSE(heap.is_zero(block));
  EXPECT_NE(allocate(kSpanBytes), block);
}

TEST_F(SpanCacheTest, ASecondFreeIsADoubleFree) {
  void* const block = allocate(kSpanBytes);
  free(block);
  Fault fault{};
  EXPECT_FALSE(heap.free_slow(block, fault));
  EXPECT_EQ(fault, Fault::kDoubleFree);
}

TEST_F(SpanCacheTest, ItKeeps256KiBAndTheLatest) {
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) {
    blocks.push_back(allocate(kSpanBytes));
  }
  for (void* const block : blocks) {
    free(block);
  }
  EXPECT_EQ(used(), SpanCache::kMaxSuperblocks * kSuperblockBytes);
  std::set<void*> latest(blocks.end() - SpanCache::kMaxSuperblocks, blocks.end());
  for (std::size_t i = 0; i < SpanCache::kMaxSuperblocks; ++i) {
    EXPECT_EQ(latest.erase(allocate(kSpanBytes)), 1U);
  }
  free(allocate(SpanCache::kMaxSuperblocks * kSuperblockBytes));
  EXPECT_EQ(used(), 2 * SpanCache::kMaxSuperblocks * kSuperblockBytes) << "the longest that it keeps";
  void* const longer = allocate((SpanCache::kMaxSuperblocks + 1) * kSuperblockBytes);
  free(longer);
  EXPECT_EQ(used(), 2 * SpanCache::kMaxSuperblocks * kSuperblockBytes);
}

TEST_F(SpanCacheTest, OtherLengthsTakeTheirPlace) {
  for (int i = 0; i < 100; ++i) {
    free(allocate((1 + static_cast<std::size_t>(i) % 5) * kSuperblockBytes));
    ASSERT_LE(used(), SpanCache::kMaxSuperblocks * kSuperblockBytes);
  }
}

TEST_F(SpanCacheTest, ATrimOrTheEndOfTheThreadReturnsAll) {
  free(allocate(kSpanBytes));
  EXPECT_TRUE(heap.trim());
  EXPECT_EQ(used(), 0U);
  free(allocate(kSpanBytes));
  heap.on_thread_exit();
  EXPECT_EQ(used(), 0U);
}

TEST_F(SpanCacheTest, AnotherHeapCanReturnThemInATrim) {
  Heap<Usual> other{pool, 1};
  free(allocate(kSpanBytes));
  EXPECT_EQ(used(), kSpanBytes);
  other.trim();
  EXPECT_EQ(used(), 0U);
  EXPECT_NE(allocate(kSpanBytes), nullptr);
}

TEST_F(SpanCacheTest, AHeapThatTakesOverHasTheSpans) {
  void* const block = allocate(kSpanBytes);
  free(block);
  Heap<Usual> next{pool, 1};
  next.take_over(heap);
  EXPECT_EQ(next.allocate_slow(kSpanBytes), block);
  EXPECT_NE(heap.allocate_slow(kSpanBytes), block);
}

}  // namespace
}  // namespace heapwright::alloc::test
