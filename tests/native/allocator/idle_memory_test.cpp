// Tests which memory returns to the kernel while the program does little: idle_memory.h,
// still_cursor.h and low_water.h.
#include <cstring>
#include <set>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;
constexpr std::size_t kBlock = 1000;
constexpr std::size_t kCount = 32 * kMiB / kBlock;

class IdleMemoryTest : public HeapTest<Usual> {
 protected:
  // Lets time pass. Every 100 ms the heap frees enough blocks to look at idle memory once.
  void do_little(std::uint64_t ms) {
    for (; ms > 0; ms -= 100) {
      now_ms += 100;
      for (int i = 0; i < 6000; ++i) {
        give(take(200));
      }
    }
  }
  [[nodiscard]] std::size_t resident_bytes() const {
    return resident(reinterpret_cast<const void*>(heap.region().base()), heap.region().bytes()).value_or(0);
  }
  [[nodiscard]] Region::Statistics region() const { return heap.region().statistics(); }
};

// Fills blocks that survive, so that a purge of them is seen.
void fill(const std::vector<void*>& blocks) {
  for (void* const block : blocks) {
    std::memset(block, static_cast<int>(reinterpret_cast<std::uintptr_t>(block) >> 4), kBlock);
  }
}
bool is_filled(const void* block) {
  const auto wanted = static_cast<unsigned char>(reinterpret_cast<std::uintptr_t>(block) >> 4);
  const auto* const bytes = static_cast<const unsigned char*>(block);
  return bytes[0] == wanted && std::memcmp(bytes, bytes + 1, kBlock - 1) == 0;
}

// Frees all blocks but one in sixteen, in random order, and returns those that are left.
template <class Free>
std::vector<void*> free_most(const std::vector<void*>& blocks, Free free) {
  constexpr std::size_t kStride = 7919;  // a prime
  std::vector<void*> left;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::size_t number = i * kStride % blocks.size();
    if (number % 16 == 0) {
      left.push_back(blocks[number]);
    } else {
      free(blocks[number]);
    }
  }
  return left;
}

// The bytes of the pages that these blocks touch.
std::size_t bytes_of_pages(const std::vector<void*>& blocks) {
  std::set<std::uintptr_t> pages;
  for (const void* const block : blocks) {
    pages.insert(reinterpret_cast<std::uintptr_t>(block) / platform::page_size());
    pages.insert((reinterpret_cast<std::uintptr_t>(block) + kBlock - 1) / platform::page_size());
  }
  return pages.size() * platform::page_size();
}

TEST_F(IdleMemoryTest, FreePagesOfStillSuperblocksReturn) {
  auto blocks = take_all(kCount, kBlock);
  fill(blocks);
  const auto left = free_most(blocks, [this](void* block) { give(block); });
  do_little(1000);
  const std::size_t before = resident_bytes();
  do_little(20'000);
  const std::size_t after = resident_bytes();
  EXPECT_LT(after, bytes_of_pages(left) + kMiB) << before / kMiB << " MiB before";
  EXPECT_LT(after, before * 3 / 4);
  EXPECT_TRUE(std::ranges::all_of(left, is_filled));
  blocks = take_all(kCount, kBlock);  // blocks on purged pages are found again
  fill(blocks);
  EXPECT_TRUE(std::ranges::all_of(left, is_filled));
  EXPECT_TRUE(std::ranges::all_of(blocks, is_filled));
  EXPECT_LT(region().used_bytes, 36 * kMiB);
  EXPECT_TRUE(reports.empty());
}

TEST_F(IdleMemoryTest, FreeSuperblocksThatAreNotNeededReturn) {
  const auto live = take_all(kCount, kBlock);
  give_all(take_all(kCount / 8, kBlock));
  heap.flush_cache();
  const std::size_t held = region().dirty_bytes;
  ASSERT_GT(held, 3 * kMiB);
  do_little(1500);
  EXPECT_GT(region().dirty_bytes, held - kMiB);
  do_little(6000);
  EXPECT_LE(region().dirty_bytes, pool.region.settings.keep_bytes);
  give_all(live);
}

TEST_F(IdleMemoryTest, MemoryThatIsNeededEachSecondStays) {
  const auto live = take_all(kCount, kBlock);
  for (int i = 0; i < 20; ++i) {
    const auto burst = take_all(kCount / 8, kBlock);
    do_little(500);
    give_all(burst);
    heap.flush_cache();
    do_little(500);
  }
  const std::size_t purged = region().purged_bytes;
  EXPECT_LT(purged, kMiB);
  give_all(live);
}

TEST_F(IdleMemoryTest, OnlyTheRestOfMemoryThatIsNeededReturns) {
  const auto live = take_all(kCount, kBlock);
  give_all(take_all(kCount / 4, kBlock));
  heap.flush_cache();
  for (int i = 0; i < 60; ++i) {
    do_little(100);
    give_all(take_all(kCount / 8, kBlock));
    heap.flush_cache();
  }
  EXPECT_GT(region().purged_bytes, kMiB);
  EXPECT_LT(region().purged_bytes, 6 * kMiB) << "4 of 8 MiB are needed again and again";
  EXPECT_TRUE(pool.region.may_purge());
  give_all(live);
}

TEST_F(IdleMemoryTest, NoMoreReturnsThanTheTimeAllows) {
  auto blocks = take_all(4 * kCount, kBlock);
  const auto left = free_most(blocks, [this](void* block) { give(block); });
  do_little(1000);
  for (int second = 0; second < 20; ++second) {
    const std::size_t before = region().purged_bytes;
    do_little(1000);
    EXPECT_LE(region().purged_bytes - before, 17 * kMiB) << second;
  }
  const std::size_t before = region().purged_bytes;
  now_ms += 3'600'000;
  do_little(100);
  EXPECT_LE(region().purged_bytes - before, 5 * kMiB) << "one call takes some milliseconds at most";
  give_all(left);
}

TEST_F(IdleMemoryTest, NothingReturnsWhilePrematurePurgesAreUnpaid) {
  const auto live = take_all(kCount, kBlock);
  give_all(take_all(kCount / 8, kBlock));
  heap.flush_cache();
  pool.region.count_purged(64 * kMiB);
  pool.region.count_reused(64 * kMiB);  // 1000 superblocks, 4 ms each
  const std::size_t before = region().purged_bytes;
  do_little(3000);
  EXPECT_EQ(region().purged_bytes, before);
  do_little(10'000);
  EXPECT_GT(region().purged_bytes, before);
  give_all(live);
}

class IdleThreadTest : public IdleMemoryTest {
 protected:
  IdleThreadTest() {
    Heap<Usual>::become_threaded(pool);
    pool.region.heaps = 2;
    for (std::size_t i = 0; i < kCount; ++i) {
      void* const block = other.allocate(kBlock);
      blocks.push_back(block != nullptr ? block : other.allocate_slow(kBlock));
    }
    fill(blocks);
    left = free_most(blocks, [this](void* block) { give_to_other(block); });
  }
  void give_to_other(void* block) {
    Fault fault{};
    const FreeResult freed = other.free(block);
    EXPECT_TRUE(freed == FreeResult::kDone || other.finish_free(freed, block, fault));
  }

  Heap<Usual> other{pool, 1};  // of a thread that sleeps from now on
  std::vector<void*> blocks;
  std::vector<void*> left;
};

TEST_F(IdleThreadTest, MemoryOfThreadsThatSleepReturns) {
  do_little(1000);
  const std::size_t before = resident_bytes();
  do_little(20'000);
  EXPECT_LT(resident_bytes(), bytes_of_pages(left) + 2 * kMiB) << before / kMiB << " MiB before";
  EXPECT_LT(resident_bytes(), before * 3 / 4);
  EXPECT_TRUE(std::ranges::all_of(left, is_filled));
  for (void* const block : left) {
    give_to_other(block);
  }
  other.flush_cache();
  other.drain_remote();
  EXPECT_LE(region().used_bytes, kMiB);
  EXPECT_TRUE(reports.empty());
}

TEST_F(IdleThreadTest, NotWhereAnotherThreadHoldsTheLock) {
  do_little(1000);
  other.lock().lock();
  const std::size_t before = resident_bytes();
  do_little(20'000);
  const std::size_t now = resident_bytes();
  EXPECT_GT(now, before - 4 * kMiB) << "free superblocks return";
  other.lock().unlock();
  do_little(20'000);
  EXPECT_LT(resident_bytes(), now - 4 * kMiB);
}

TEST_F(IdleThreadTest, NotInAForkedChildWithoutTheThread) {
  pool.forget_other_heaps();
  heap.keep_in_child();
  const std::size_t before = resident_bytes();
  do_little(20'000);
  EXPECT_GT(resident_bytes(), before - 4 * kMiB);
}

TEST(LowWater, ItIsTheLowestOfTheLastWholeWindow) {
  LowWater low;
  EXPECT_EQ(low.unused(10, 5000, 2000), 0U) << "the first window begins";
  low.after_fall(6);
  EXPECT_EQ(low.unused(9, 6000, 2000), 0U);
  EXPECT_EQ(low.unused(9, 7000, 2000), 6U);
  low.after_fall(4);
  EXPECT_EQ(low.unused(9, 8000, 2000), 4U) << "the others were needed meanwhile";
  EXPECT_EQ(low.unused(9, 9000, 2000), 4U);
  EXPECT_EQ(low.unused(9, 11'000, 2000), 9U);
  low.after_purge(5, 4);
  EXPECT_EQ(low.unused(9, 11'500, 2000), 4U) << "the others of the nine are purged";
  EXPECT_EQ(low.unused(9, 13'000, 2000), 4U);
}

}  // namespace
}  // namespace heapwright::alloc::test
