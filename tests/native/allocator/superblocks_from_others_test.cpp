// Tests that a heap takes superblocks of other heaps before it starts new ones.
#include "core/superblocks_from_others.h"

#include <gtest/gtest.h>

#include <deque>
#include <iterator>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "core/remote_frees.h"
#include "support.h"

namespace heapwright::alloc::test {
namespace {

class SuperblocksFromOthersTest : public testing::Test {
 protected:
  using Owned = OwnedSuperblocks<Usual>;
  static constexpr std::size_t kSize = 1152;
  static constexpr std::size_t kClass = Owned::Classes::of(kSize);
  static constexpr std::size_t kBlocks = kSuperblockBytes / kSize;
  static constexpr std::size_t kReturned = 20;  // more than a quarter of kBlocks

  SuperblocksFromOthersTest() {
    now_ms = 1'000'000;
    pool.region.settings.clock = test_clock;
    pool.region.settings.huge_pages = platform::HugePageMode::kNever;
    Owned::become_threaded(pool);
  }
  ~SuperblocksFromOthersTest() override { abandon(pool.region); }

  // Takes all blocks of `count` superblocks, returns some of each, and returns the rest. The latest
  // superblock is current.
  static std::vector<Block*> take_and_return_some(Owned& owned, std::size_t count, std::size_t returned,
                                                  std::size_t size = kSize) {
    const std::size_t in_each = kSuperblockBytes / size;
    const auto taken = take(owned, Owned::Classes::of(size), count * in_each);
    std::vector<Block*> some;
    std::vector<Block*> rest;
    for (std::size_t i = 0; i < taken.size(); ++i) {
      (i % in_each < returned ? some : rest).push_back(taken[i]);
    }
    EXPECT_EQ(owned.return_blocks(linked(some)), nullptr);
    EXPECT_GE(owned.purger().idle_bytes(), kSuperblockBytes) << "enough to be looked at";
    see(rest);
    now_ms += RemoteQueue::kStillMs;
    return rest;
  }
  // As if another heap had looked at the superblocks of these blocks.
  static void see(const std::vector<Block*>& blocks) {
    for (Block* const block : blocks) {
      Superblock* const superblock = superblock_of(block);
      (void)RemoteQueue::of(superblock).is_still(superblock, now_ms);
    }
  }
  [[nodiscard]] std::size_t superblocks_in_use() const {
    return pool.region.statistics().used_bytes / kSuperblockBytes;
  }

  Pool pool;
  Owned mine{pool, owner_tag(1)};
  Owned other{pool, owner_tag(2)};
};

TEST_F(SuperblocksFromOthersTest, AHeapTakesThoseThatAnotherDoesNotUse) {
  take_and_return_some(mine, 6, kReturned);
  for (std::size_t left = 5; left * kReturned * kSize >= kSuperblockBytes; --left) {
    EXPECT_EQ(mine.purger().idle_bytes(), left * kReturned * kSize);
    const BlockChain blocks = other.refill(kClass, 4);
    EXPECT_EQ(blocks.count, kReturned);
    EXPECT_EQ(tag_of(pool, blocks.first), make_tag(owner_tag(2), kClass));
    EXPECT_EQ(superblocks_in_use(), 6U);
    EXPECT_EQ(other.purger().idle_bytes(), 0U);
  }
  EXPECT_NE(other.refill(kClass, 4).first, nullptr);
  EXPECT_EQ(superblocks_in_use(), 7U) << "the other heap has too little to be looked at";
}

TEST_F(SuperblocksFromOthersTest, TheNewOwnerReleasesThem) {
  const auto rest = take_and_return_some(mine, 6, kReturned);
  EXPECT_EQ(other.return_blocks(other.refill(kClass, 4)), nullptr);
  EXPECT_EQ(other.purger().idle_bytes(), kReturned * kSize);
  Block* const remote = mine.return_blocks(linked(rest));
  EXPECT_EQ(mine.purger().idle_bytes(), 0U);
  EXPECT_EQ(superblocks_in_use(), 1U) << "the one that has another owner now";
  EXPECT_EQ(other.return_blocks({remote, kBlocks - kReturned}), nullptr);
  EXPECT_EQ(superblocks_in_use(), 0U);
  EXPECT_EQ(other.purger().idle_bytes(), 0U);
}

TEST_F(SuperblocksFromOthersTest, NotThoseOfWhichLessThanAQuarterIsFree) {
  take_and_return_some(mine, 8, kBlocks / 4 - 1);
  EXPECT_NE(other.refill(kClass, 4).first, nullptr);
  EXPECT_EQ(superblocks_in_use(), 9U);
}

// A heap that frees a burst needs its superblocks for the next one.
TEST_F(SuperblocksFromOthersTest, NotThoseThatHaveJustChanged) {
  auto rest = take_and_return_some(mine, 6, kReturned);
  now_ms -= 1;
  EXPECT_NE(other.refill(kClass, 4).first, nullptr);
  EXPECT_EQ(superblocks_in_use(), 7U) << "the last look is not long ago";
  now_ms += 1;
  std::vector<Block*> freed(rest.end() - 5 * (kBlocks - kReturned), rest.end());
  std::vector<Block*> some;
  for (std::size_t i = 0; i < freed.size(); ++i) {
    if (i % (kBlocks - kReturned) <= kBlocks / 8) {
      some.push_back(freed[i]);
    }
  }
  EXPECT_EQ(mine.return_blocks(linked(some)), nullptr);
  Owned third{pool, owner_tag(3)};
  const BlockChain blocks = third.refill(kClass, 4);
  EXPECT_EQ(superblocks_in_use(), 7U);
  EXPECT_EQ(superblock_of(blocks.first), superblock_of(rest[0])) << "the only one that has not changed";
  EXPECT_NE(Owned(pool, owner_tag(4)).refill(kClass, 4).first, nullptr);
  EXPECT_EQ(superblocks_in_use(), 8U);
}

// Otherwise their threads would share cache lines.
TEST_F(SuperblocksFromOthersTest, SmallBlocksOnlyIfOtherThreadsFreeThem) {
  constexpr std::size_t kSmall = 80;
  constexpr std::size_t kOfSmall = kSuperblockBytes / kSmall;
  const std::size_t number = Owned::Classes::of(kSmall);
  const auto rest = take_and_return_some(mine, 6, kOfSmall / 2, kSmall);
  EXPECT_NE(other.refill(number, 4).first, nullptr);
  EXPECT_EQ(superblocks_in_use(), 7U) << "a new one";
  RemoteFrees<Usual> frees_of_other{pool, other};
  for (std::size_t i = 0; i < kOfSmall / 4 + 1; ++i) {  // all of one superblock
    frees_of_other.free(superblock_of(rest[i]), rest[i]);
  }
  frees_of_other.send_all();
  see(rest);
  now_ms += RemoteQueue::kStillMs;
  Owned third{pool, owner_tag(3)};
  const BlockChain blocks = third.refill(number, 4);
  EXPECT_EQ(superblock_of(blocks.first), superblock_of(rest[0]));
  EXPECT_EQ(superblocks_in_use(), 7U);
}

TEST_F(SuperblocksFromOthersTest, NotTheOneThatItsHeapAllocatesFrom) {
  take_and_return_some(mine, 6, kReturned);
  const auto current = take_and_return_some(mine, 1, kReturned, kSize / 2);
  EXPECT_NE(other.refill(Owned::Classes::of(kSize / 2), 4).first, nullptr);
  EXPECT_EQ(superblocks_in_use(), 8U);
}

TEST_F(SuperblocksFromOthersTest, NoHeapWaitsForTheLockOfAnother) {
  take_and_return_some(mine, 6, kReturned);
  mine.lock().lock();
  EXPECT_NE(other.refill(kClass, 4).first, nullptr);
  mine.lock().unlock();
  EXPECT_EQ(superblocks_in_use(), 7U);
}

TEST_F(SuperblocksFromOthersTest, NotThoseOfAHeapOfTheParentProcess) {
  take_and_return_some(mine, 6, kReturned);
  pool.forget_other_heaps();
  EXPECT_NE(other.refill(kClass, 4).first, nullptr);
  EXPECT_EQ(superblocks_in_use(), 7U);
}

// Threads share a queue of buffers, and take turns in replacing older ones.
TEST(SuperblocksFromOthers, MemoryDoesNotGrowWhereHeapsTakeTurns) {
  constexpr std::size_t kLive = 8000;
  constexpr std::size_t kSizes[] = {1024, 1536, 2048, 3072, 4096};
  Pool pool;
  pool.region.settings.clock = test_clock;
  pool.region.settings.huge_pages = platform::HugePageMode::kNever;
  OwnedSuperblocks<Usual>::become_threaded(pool);
  std::vector<std::unique_ptr<Heap<Usual>>> heaps;
  for (std::uint32_t number = 1; number <= 6; ++number) {
    heaps.push_back(std::make_unique<Heap<Usual>>(pool, number));
  }
  std::mt19937 random(1);
  std::deque<std::pair<void*, std::size_t>> buffers;
  std::size_t live_bytes = 0;
  now_ms = 1'000'000;
  for (int turn = 0; turn < 400; ++turn, now_ms += 10) {
    Heap<Usual>& heap = *heaps[random() % heaps.size()];
    for (std::size_t i = 0; i < 500 + random() % 3000; ++i) {
      const std::size_t bytes = kSizes[random() % std::size(kSizes)];
      void* const fast = heap.allocate(bytes);
      buffers.emplace_back(fast != nullptr ? fast : heap.allocate_slow(bytes), bytes);
      live_bytes += bytes;
      if (buffers.size() > kLive) {
        const auto old = buffers.begin() + (random() % 2 == 0 ? random() % (kLive / 2) : 0);
        Fault fault{};
        const FreeResult freed = heap.free(old->first);
        EXPECT_TRUE(freed == FreeResult::kDone || heap.finish_free(freed, old->first, fault));
        live_bytes -= old->second;
        buffers.erase(old);
      }
    }
  }
  EXPECT_LT(pool.region.statistics().used_bytes, live_bytes * 13 / 10)
      << "more than 1.35 if each heap starts its own";
  abandon(pool.region);
}

}  // namespace
}  // namespace heapwright::alloc::test
