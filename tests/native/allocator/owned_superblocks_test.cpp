// Tests the superblocks that a heap owns, and remote frees between two heaps, without a thread
// cache.
#include "core/owned_superblocks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/remote_frees.h"
#include "core/return_blocks.h"
#include "core/take_blocks.h"
#include "support.h"

namespace heapwright::alloc::test {
namespace {

class OwnedSuperblocksTest : public testing::Test {
 protected:
  using Owned = OwnedSuperblocks<Usual>;
  static constexpr std::size_t kClass = Owned::Classes::aligned(1024, 1024);
  static constexpr std::size_t kBlocks = kSuperblockBytes / 1024;

  OwnedSuperblocksTest() {
    reports.clear();
    now_ms = 1'000'000;
    pool.on_fault = report;
    pool.region.settings.clock = test_clock;
    pool.region.settings.huge_pages = platform::HugePageMode::kNever;
  }
  ~OwnedSuperblocksTest() override { abandon(pool.region); }

  static std::vector<Block*> take(Owned& owned, std::size_t count) {
    return test::take(owned, kClass, count);
  }
  [[nodiscard]] std::size_t superblocks_in_use() const {
    return pool.region.statistics().used_bytes / kSuperblockBytes;
  }

  Pool pool;
  Owned mine{pool, owner_tag(1)};
  Owned other{pool, owner_tag(2)};
  RemoteFrees<Usual> frees_of_other{pool, other};
};

TEST_F(OwnedSuperblocksTest, ASuperblockThatIsAllFreeReturnsToTheRegion) {
  const auto blocks = take(mine, kBlocks);
  EXPECT_EQ(superblocks_in_use(), 1U);
  EXPECT_EQ(mine.return_blocks(linked(blocks)), nullptr);
  EXPECT_EQ(superblocks_in_use(), 0U);
  EXPECT_EQ(mine.purger().idle_bytes(), 0U);
}

TEST_F(OwnedSuperblocksTest, IdleBytesAreThoseOfSuperblocksThatAreNotCurrent) {
  const auto blocks = take(mine, 2 * kBlocks);
  mine.return_blocks(linked({blocks[0], blocks[1], blocks[2]}));
  EXPECT_EQ(mine.purger().idle_bytes(), 3 * 1024U);
  EXPECT_EQ(mine.refill(kClass, 4).count, 3U) << "all that the superblock has";
  EXPECT_EQ(mine.purger().idle_bytes(), 0U);
}

TEST_F(OwnedSuperblocksTest, BlocksOfAnotherHeapComeBack) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, 8);
  EXPECT_EQ(other.return_blocks(linked({blocks[0]})), blocks[0]);
  EXPECT_EQ(mine.return_blocks(linked({blocks[0]})), nullptr);
}

TEST_F(OwnedSuperblocksTest, ARemoteFreeWaitsUntilItIsSentAndCollected) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, 8);
  RemoteQueue& queue = RemoteQueue::of(superblock_of(blocks[0]));
  frees_of_other.free(superblock_of(blocks[0]), blocks[0]);
  EXPECT_EQ(queue.count(), 0U);
  frees_of_other.send_all();
  EXPECT_EQ(queue.count(), 1U);
  mine.collect_remote_frees();
  EXPECT_EQ(queue.count(), 0U);
}

TEST_F(OwnedSuperblocksTest, AFullBatchIsSent) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, 8);
  for (std::size_t i = 0; i < RemoteFrees<Usual>::kMaxBytes / 1024; ++i) {
    EXPECT_EQ(RemoteQueue::of(superblock_of(blocks[0])).count(), 0U);
    frees_of_other.free(superblock_of(blocks[i]), blocks[i]);
  }
  EXPECT_EQ(RemoteQueue::of(superblock_of(blocks[0])).count(), RemoteFrees<Usual>::kMaxBytes / 1024);
}

TEST_F(OwnedSuperblocksTest, AnInteriorPointerIsReportedAndNotSent) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, 4);
  auto* const inside = reinterpret_cast<Block*>(reinterpret_cast<char*>(blocks[0]) + 16);
  frees_of_other.free(superblock_of(inside), inside);
  EXPECT_EQ(reports, std::vector<Reported>({{inside, Fault::kInterior}}));
  frees_of_other.each([](const RemoteFreeBatch&) { FAIL(); });
}

TEST_F(OwnedSuperblocksTest, ABatchTakesOnlyBlocksOfItsSuperblock) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, 2 * kBlocks);
  const auto tag_index = [&](Block* block) {
    return Region::tag_index(reinterpret_cast<std::uintptr_t>(block) - pool.region.base());
  };
  EXPECT_EQ(frees_of_other.add(tag_index(blocks[0]), blocks[0]), FreeResult::kNoBatch);
  frees_of_other.free(superblock_of(blocks[0]), blocks[0]);
  EXPECT_EQ(frees_of_other.add(tag_index(blocks[1]), blocks[1]), FreeResult::kDone);
  EXPECT_EQ(frees_of_other.add(tag_index(blocks[kBlocks]), blocks[kBlocks]), FreeResult::kNoBatch);
  frees_of_other.send_all();
  EXPECT_EQ(RemoteQueue::of(superblock_of(blocks[0])).count(), 2U);
  EXPECT_EQ(frees_of_other.add(tag_index(blocks[2]), blocks[2]), FreeResult::kNoBatch) << "the batch is gone";
}

TEST_F(OwnedSuperblocksTest, AnInteriorPointerInABatchIsReportedWhenItIsSent) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, 4);
  Superblock* const superblock = superblock_of(blocks[0]);
  const auto offset = reinterpret_cast<std::uintptr_t>(memory_of(superblock)) - pool.region.base();
  auto* const inside = reinterpret_cast<Block*>(reinterpret_cast<char*>(blocks[2]) + 16);
  frees_of_other.free(superblock, blocks[0]);
  frees_of_other.add(Region::tag_index(offset), inside);
  frees_of_other.add(Region::tag_index(offset), blocks[1]);
  frees_of_other.send_all();
  EXPECT_EQ(reports, std::vector<Reported>({{inside, Fault::kInterior}}));
  EXPECT_EQ(RemoteQueue::of(superblock).count(), 2U);
}

TEST_F(OwnedSuperblocksTest, ABatchWithABlockFreedTwiceIsReportedAndDropped) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, 4);
  Superblock* const superblock = superblock_of(blocks[0]);
  for (Block* block : {blocks[0], blocks[1], blocks[2], blocks[1]}) {
    frees_of_other.free(superblock, block);
  }
  frees_of_other.send_all();
  EXPECT_EQ(reports, std::vector<Reported>({{blocks[1], Fault::kDoubleFree}}));
  EXPECT_EQ(RemoteQueue::of(superblock).count(), 0U);
}

TEST_F(OwnedSuperblocksTest, WhoeverFreesAQuarterOfAFullSuperblockOwnsIt) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, kBlocks);
  mine.refill(kClass, 4);
  ASSERT_EQ(superblocks_in_use(), 2U) << "the first superblock is full";
  Superblock* const superblock = superblock_of(blocks[0]);
  EXPECT_FALSE(superblock->queued);
  for (std::size_t i = 0; i < kBlocks / 4; ++i) {
    frees_of_other.free(superblock, blocks[i]);
  }
  EXPECT_TRUE(superblock->queued);
  EXPECT_EQ(superblock->owner, &other);
  EXPECT_EQ(tag_of(pool, blocks[0]), make_tag(owner_tag(2), kClass));
}

TEST_F(OwnedSuperblocksTest, TheFreeingThreadReclaimsForAnIdleOwner) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, kBlocks - 4);
  mine.on_thread_exit();
  Superblock* const superblock = superblock_of(blocks[0]);
  for (std::size_t i = 0; i < kBlocks / 4; ++i) {
    frees_of_other.free(superblock, blocks[i]);
  }
  EXPECT_EQ(superblock->owner, &mine);
  EXPECT_EQ(superblock->free_count, kBlocks / 4);
  EXPECT_EQ(mine.purger().idle_bytes(), kSuperblockBytes / 4);
  for (std::size_t i = kBlocks / 4; i < blocks.size(); ++i) {
    frees_of_other.free(superblock, blocks[i]);
  }
  frees_of_other.send_all();
  EXPECT_EQ(superblocks_in_use(), 0U) << "reclaimed, and all of it is free";
}

// It could reclaim nothing, so it does not wait for the owner's lock.
TEST_F(OwnedSuperblocksTest, NoLockIsTakenToSendToACurrentSuperblock) {
  Owned::become_threaded(pool);
  const auto blocks = take(mine, kBlocks - 4);
  Superblock* const superblock = superblock_of(blocks[0]);
  ASSERT_TRUE(superblock->current);
  mine.lock().lock();
  std::atomic<bool> sent = false;
  std::thread another([&] {
    for (std::size_t i = 0; i < kBlocks / 2; ++i) {
      frees_of_other.free(superblock, blocks[i]);
    }
    sent = true;
  });
  for (int i = 0; i < 2000 && !sent; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(sent);
  mine.lock().unlock();
  another.join();
  EXPECT_EQ(RemoteQueue::of(superblock).count(), kBlocks / 2);
}

TEST_F(OwnedSuperblocksTest, TheRegionDoesNotShrinkWhileAThreadSends) {
  static Pool* watched = nullptr;
  static bool active = false;
  pool.region.settings.keep_bytes = 0;  // so that release() reads the clock
  watched = &pool;
  active = false;
  pool.region.settings.clock = [] {
    active = active || (watched->records != nullptr && watched->records->sends);
    return now_ms;
  };
  Owned::become_threaded(pool);
  const auto blocks = take(mine, kBlocks - 4);
  mine.on_thread_exit();
  for (Block* const block : blocks) {
    frees_of_other.free(superblock_of(block), block);
  }
  frees_of_other.send_all();
  EXPECT_EQ(superblocks_in_use(), 0U);
  EXPECT_TRUE(active) << "while it released the superblock";
  ASSERT_NE(pool.records, nullptr);
  EXPECT_FALSE(pool.records->sends) << "afterwards";
  pool.records->sends = true;
  pool.shrink_region();
  EXPECT_EQ(pool.region.bytes(), kChunkBytes);
  pool.records->sends = false;
  pool.shrink_region();
  EXPECT_EQ(pool.region.bytes(), 0U);
}

TEST_F(OwnedSuperblocksTest, CollectionIsDueAfterSoManyNewSuperblocks) {
  for (std::size_t started = 0; started < 32; ++started) {
    EXPECT_FALSE(mine.collection_due()) << started;
    take(mine, kBlocks);
  }
  EXPECT_TRUE(mine.collection_due());
  EXPECT_FALSE(mine.collection_due()) << "it counts anew";
}

// musl and glibc before 2.32 do not tell whether there are threads.
TEST_F(OwnedSuperblocksTest, AThreadWaitsForTheLockWhateverTheCLibraryTells) {
  Owned::become_threaded(pool);
  mine.lock().lock();
  std::atomic<bool> collected = false;
  std::thread another([&] {
    mine.collect_remote_frees();
    collected = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(collected);
  mine.lock().unlock();
  another.join();
  EXPECT_TRUE(collected);
}

}  // namespace
}  // namespace heapwright::alloc::test
