// Tests the lists of blocks that other threads have freed: by themselves, and between two heaps.
#include "core/freed_by_others.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

constexpr std::size_t kKiB = 1024;

class FreedByOthersTest : public ::testing::Test {
 protected:
  using Lists = FreedByOthers<Usual>;
  static constexpr std::size_t kNumber = Lists::Classes::of(16 * kKiB);
  static_assert(kNumber > Lists::kFirstClass);

  std::array<Block, 1000> blocks{};
  Pool pool;
  Lists lists;
};

TEST_F(FreedByOthersTest, TheyAreOpenInOneProcessUntilTheyAreClosed) {
  EXPECT_FALSE(lists.is_open(pool));
  lists.open(pool);
  EXPECT_TRUE(lists.is_open(pool));
  ++pool.forks;
  EXPECT_FALSE(lists.is_open(pool)) << "the heap's thread is not in the child";
  lists.open(pool);
  EXPECT_TRUE(lists.is_open(pool));
  lists.close();
  EXPECT_FALSE(lists.is_open(pool));
}

TEST_F(FreedByOthersTest, TheLatestBlockComesFirstAndAllAreTakenAtOnce) {
  lists.open(pool);
  ASSERT_TRUE(lists.add(pool, kNumber, &blocks[0]));
  ASSERT_TRUE(lists.add(pool, kNumber, &blocks[1]));
  ASSERT_TRUE(lists.add(pool, Lists::kFirstClass, &blocks[2]));
  EXPECT_EQ(lists.bytes(), 32 * kKiB + Lists::Classes::bytes(Lists::kFirstClass));
  const BlockChain taken = lists.take(kNumber);
  EXPECT_EQ(taken.count, 2U);
  EXPECT_EQ(taken.first, &blocks[1]);
  EXPECT_EQ(blocks[1].next, &blocks[0]);
  EXPECT_EQ(blocks[0].next, nullptr);
  EXPECT_EQ(lists.take(kNumber).first, nullptr);
  EXPECT_EQ(lists.take(Lists::kFirstClass).first, &blocks[2]);
  EXPECT_EQ(lists.bytes(), 0U);
}

TEST_F(FreedByOthersTest, AllHeapsTogetherKeepFourMegabytes) {
  lists.open(pool);
  for (const std::size_t heaps : {8, 64}) {
    pool.region.heaps = heaps;
    std::size_t added = 0;
    while (lists.add(pool, kNumber - added % 2 * Usual::kClassesPerDoubling, &blocks[added])) {
      ++added;
    }
    const std::size_t share = (std::size_t{4} << 20U) / heaps;
    EXPECT_LE(lists.bytes(), share);
    EXPECT_GT(lists.bytes(), share - 16 * kKiB);
    lists.take(kNumber);
    EXPECT_TRUE(lists.add(pool, kNumber, &blocks[999]));
    lists.take_all([](BlockChain) {});
    EXPECT_EQ(lists.bytes(), 0U);
  }
}

TEST_F(FreedByOthersTest, OnlyListsThatAreNotInUseAreTakenAsUnused) {
  lists.open(pool);
  lists.add(pool, kNumber, &blocks[0]);
  lists.add(pool, Lists::kFirstClass, &blocks[1]);
  lists.take_for_use(kNumber);
  lists.add(pool, kNumber, &blocks[2]);
  std::vector<const Block*> unused;
  const auto note = [&](BlockChain list) { unused.push_back(list.first); };
  lists.take_unused(note);
  EXPECT_EQ(unused, std::vector<const Block*>{&blocks[1]});
  lists.take_unused(note);  // since then not in use
  EXPECT_EQ(unused.back(), &blocks[2]);
  EXPECT_EQ(lists.bytes(), 0U);
}

// With 16 blocks of 16 KiB as the usual limit, 64 as the raised one.
class RaisedLimitTest : public FreedByOthersTest {
 protected:
  RaisedLimitTest() {
    now_ms = 5000;
    pool.region.settings.clock = test_clock;
    pool.region.heaps = 16;
    lists.open(pool);
  }
  // Adds blocks until they are refused, and returns how many the lists then have.
  std::size_t fill() {
    std::size_t count = lists.bytes() / (16 * kKiB);
    while (lists.add(pool, kNumber, &blocks[count])) {
      ++count;
    }
    return count;
  }
  const std::uint64_t delay = pool.region.settings.delay_ms;
};

TEST_F(RaisedLimitTest, AHeapThatLacksRefusedBlocksRaisesItForAWhile) {
  lists.after_miss(pool, kNumber);
  EXPECT_EQ(fill(), 16U) << "nothing was refused before";
  lists.after_miss(pool, Lists::kFirstClass);
  EXPECT_EQ(fill(), 16U) << "blocks of another class were refused";
  lists.after_miss(pool, kNumber);
  now_ms += delay - 1;
  EXPECT_EQ(fill(), 64U);
  lists.take(kNumber);
  now_ms += 1;
  EXPECT_EQ(fill(), 16U) << "it falls, whether or not the heap's thread runs";
}

TEST_F(RaisedLimitTest, ItFollowsTheNumberOfHeaps) {
  fill();
  lists.after_miss(pool, kNumber);
  pool.region.heaps = 32;
  EXPECT_EQ(fill(), 32U);
}

TEST_F(RaisedLimitTest, AnOldRefusalDoesNotCount) {
  fill();
  now_ms += delay;
  lists.after_miss(pool, kNumber);
  EXPECT_EQ(fill(), 16U);
}

TEST_F(RaisedLimitTest, AThreadThatEndsLeavesNothing) {
  fill();
  lists.after_miss(pool, kNumber);
  fill();
  lists.close();
  lists.take(kNumber);
  lists.open(pool);
  lists.after_miss(pool, kNumber);
  EXPECT_EQ(fill(), 16U);
}

TEST_F(FreedByOthersTest, TheirBytesCanBeCountedAgain) {
  lists.add(pool, kNumber, &blocks[0]);
  lists.add(pool, Lists::kFirstClass, &blocks[1]);
  const std::size_t before = lists.bytes();
  lists.count_again();
  EXPECT_EQ(lists.bytes(), before);
}

TEST_F(FreedByOthersTest, ALookAtThemPutsThemBack) {
  lists.open(pool);
  for (std::size_t i = 0; i < 5; ++i) {
    lists.add(pool, kNumber, &blocks[i]);
  }
  std::set<const Block*> seen;
  lists.each([&](std::size_t number, const Block* block) {
    EXPECT_EQ(number, kNumber);
    lists.add(pool, kNumber, &blocks[10]);  // as another thread may meanwhile
    for (; block != nullptr; block = block->next) {
      seen.insert(block);
    }
  });
  EXPECT_EQ(seen.size(), 5U);
  EXPECT_EQ(lists.bytes(), 6 * 16 * kKiB);
  EXPECT_EQ(lists.take(kNumber).count, 6U);
  EXPECT_EQ(lists.bytes(), 0U);
}

// `heap` allocates, and `other` frees.
class HandoverTest : public HeapTest<Usual> {
 protected:
  HandoverTest() {
    Heap<Usual>::become_threaded(pool);
    pool.region.heaps = 2;
  }
  std::vector<void*> take_all(std::size_t count) {
    std::vector<void*> blocks(count);
    std::ranges::generate(blocks, [&] { return take(16 * kKiB); });
    return blocks;
  }
  void free_by_other(const std::vector<void*>& blocks) {
    for (void* const block : blocks) {
      Fault fault{};
      EXPECT_TRUE(other.finish_free(other.free(block), block, fault));
    }
  }
  Heap<Usual> other{pool, 1};
};

TEST_F(HandoverTest, ItsBlocksComeBackToTheHeapThatAllocatedThem) {
  auto first = take_all(40);
  free_by_other(first);
  EXPECT_EQ(heap.statistics().live_blocks, 0U);
  EXPECT_EQ(heap.statistics().live_blocks, 0U) << "counting has put them back";
  auto second = take_all(40);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first, second);
  free_by_other(second);
}

TEST_F(HandoverTest, MoreThanAShareReturnsToTheRegion) {
  free_by_other(take_all(4000));
  const std::size_t used = heap.statistics().region.used_bytes;
  EXPECT_LE(used, 3U << 20U) << "62 MiB were freed";
  EXPECT_GE(used, 1U << 20U);
}

TEST_F(HandoverTest, TheThreadCacheTakesNoLongList) {
  free_by_other(take_all(120));
  take(16 * kKiB);
  EXPECT_GT(heap.statistics().cached_bytes, 1U << 20U);
  other.trim();
  EXPECT_LE(heap.statistics().cached_bytes, 2 * Depot<Usual>::kPrivateBytes);
}

TEST_F(HandoverTest, BlocksOfClassesNoLongerNeededMakeWay) {
  free_by_other(take_all(200));
  const std::size_t full = heap.statistics().region.used_bytes;
  for (int round = 0; round < 300; ++round) {
    std::vector<void*> blocks(20);
    std::ranges::generate(blocks, [&] { return take(6 * kKiB); });
    free_by_other(blocks);
  }
  EXPECT_LT(heap.statistics().region.used_bytes, full / 2);
}

TEST_F(HandoverTest, NothingStaysForAThreadThatHasEnded) {
  const auto blocks = take_all(40);
  const auto late = take_all(40);
  free_by_other(blocks);
  heap.on_thread_exit();
  EXPECT_EQ(heap.statistics().cached_bytes, 0U);
  EXPECT_EQ(heap.statistics().region.used_bytes, 40 * 16 * kKiB) << "those still in use";
  free_by_other(late);
  other.flush_cache();  // it has become the owner of their superblocks
  other.drain_remote();
  EXPECT_EQ(heap.statistics().region.used_bytes, 0U);
}

TEST_F(HandoverTest, AHeapThatTrimsEmptiesTheListsOfAll) {
  free_by_other(take_all(40));
  EXPECT_TRUE(other.trim());
  EXPECT_EQ(heap.statistics().cached_bytes, 0U);
}

TEST_F(HandoverTest, ADoubleFreeIsReported) {
  const auto blocks = take_all(2);
  free_by_other({blocks[0], blocks[1], blocks[0]});
  EXPECT_TRUE(reports.empty());
  take(16 * kKiB);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].fault, Fault::kDoubleFree);
  reports.clear();
}

}  // namespace
}  // namespace heapwright::alloc::test
