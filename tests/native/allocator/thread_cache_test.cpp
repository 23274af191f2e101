// Tests the thread cache alone: lists, checks, flushes, and the bounds of the region.
#include "core/thread_cache.h"

#include <array>
#include <cstddef>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

class ThreadCacheTest : public testing::Test {
 protected:
  using Cache = ThreadCache<Usual>;
  using Classes = Cache::Classes;
  static constexpr std::size_t kBytes = 64;

  ThreadCacheTest() {
    reports.clear();
    pool.on_fault = report;
  }
  static std::uint32_t offset() { return make_tag(0, number()); }
  static std::size_t number() { return Classes::of(kBytes); }
  // A list of `count` blocks as a refill brings it.
  Block* linked(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      blocks[i].next = i + 1 < count ? &blocks[i + 1] : nullptr;
    }
    return blocks.data();
  }
  static std::size_t length(const Block* block) {
    std::size_t count = 0;
    for (; block != nullptr; block = block->next) {
      ++count;
    }
    return count;
  }

  Pool pool;
  Cache cache{pool, 0};
  std::array<Block, 1000> blocks{};
};

TEST_F(ThreadCacheTest, AnEmptyListGivesNoBlock) {
  EXPECT_EQ(cache.take(kBytes), nullptr);
  EXPECT_EQ(cache.take_from(number()), nullptr);
  EXPECT_EQ(cache.take(Cache::kMaxTableBytes + 1), nullptr);
}

TEST_F(ThreadCacheTest, TheMostRecentlyFreedBlockIsTakenFirst) {
  EXPECT_TRUE(cache.put(offset(), &blocks[0]));
  EXPECT_TRUE(cache.put(offset(), &blocks[1]));
  EXPECT_EQ(cache.take(kBytes), &blocks[1]);
  EXPECT_EQ(cache.take(kBytes - 15), &blocks[0]);
  EXPECT_EQ(cache.take(kBytes), nullptr);
}

TEST_F(ThreadCacheTest, AFullListIsDueForItsCheck) {
  const auto max = static_cast<std::size_t>(cache.max_blocks(number()));
  for (std::size_t i = 0; i < max; ++i) {
    ASSERT_TRUE(cache.put(offset(), &blocks[i])) << i;
  }
  EXPECT_FALSE(cache.put(offset(), &blocks[max]));
}

TEST_F(ThreadCacheTest, ARefillShortensTheTimeUntilTheCheck) {
  const auto max = static_cast<std::size_t>(cache.max_blocks(number()));
  const std::size_t batch = cache.batch_blocks(number());
  EXPECT_EQ(batch, max / 2);
  cache.fill(number(), linked(batch), batch);
  for (std::size_t i = 0; i < max - batch; ++i) {
    ASSERT_TRUE(cache.put(offset(), &blocks[batch + i])) << i;
  }
  EXPECT_FALSE(cache.put(offset(), &blocks[max]));
}

TEST_F(ThreadCacheTest, ACheckTakesALongListAndABoundOfItsLength) {
  const auto max = static_cast<std::size_t>(cache.max_blocks(number()));
  const std::size_t batch = cache.batch_blocks(number());
  for (const std::size_t filled : {batch, max}) {
    cache.fill(number(), linked(filled), filled);
    std::size_t added = 1;
    while (cache.put(offset(), &blocks[filled + added])) {
      ++added;
    }
    const BlockChain list = cache.take_full(number());
    EXPECT_EQ(length(list.first), filled + added);
    EXPECT_EQ(list.count, filled + added);
    EXPECT_EQ(cache.take(kBytes), nullptr);
  }
}

TEST_F(ThreadCacheTest, ACheckLeavesAShortList) {
  const auto max = static_cast<std::size_t>(cache.max_blocks(number()));
  cache.fill(number(), linked(max / 8), max / 8);
  EXPECT_EQ(cache.take_full(number()).first, nullptr);
  EXPECT_EQ(cache.take(kBytes), &blocks[0]);
  for (std::size_t i = 0; i < max; ++i) {
    ASSERT_TRUE(cache.put(offset(), &blocks[max + i])) << i;
  }
  EXPECT_FALSE(cache.put(offset(), &blocks[2 * max]));
  const BlockChain list = cache.take_full(number());
  EXPECT_GE(list.count, length(list.first));
}

TEST_F(ThreadCacheTest, TheListOfNoClassIsAlwaysDue) {
  EXPECT_FALSE(cache.put(0, &blocks[0]));
  cache.reset_list_of_no_class();
  EXPECT_FALSE(cache.put(0, &blocks[0]));
}

TEST_F(ThreadCacheTest, ItsSizeIsASetting) {
  cache.set_bytes_per_class(kBytes * 20);
  EXPECT_EQ(cache.max_blocks(number()), 20);
  cache.set_bytes_per_class(1);
  EXPECT_EQ(cache.max_blocks(number()), 8) << "the least";
  cache.set_bytes_per_class(SIZE_MAX);
  EXPECT_EQ(cache.max_blocks(number()), static_cast<std::int32_t>(Usual::kCacheBlocksPerClass));
}

TEST_F(ThreadCacheTest, ACacheThatWasTakenOverHasNothing) {
  cache.put(offset(), &blocks[0]);
  Cache other(pool, 0);
  other.take_over(cache);
  EXPECT_EQ(cache.take(kBytes), nullptr);
  EXPECT_EQ(cache.limit(), 0U);
  EXPECT_EQ(other.take(kBytes), &blocks[0]);
}

TEST_F(ThreadCacheTest, EachBlockIsVisited) {
  cache.fill(number(), linked(5), 5);
  cache.put(make_tag(0, 1), &blocks[10]);
  std::size_t bytes = 0;
  cache.each([&](std::size_t class_number, const Block*) { bytes += Classes::bytes(class_number); });
  EXPECT_EQ(bytes, 5 * kBytes + Classes::bytes(1));
}

}  // namespace
}  // namespace heapwright::alloc::test
