// Tests the bounds of a heap's depot: the rules of Heap::store_list, make_room and
// empty_own_or_idle_depot.
#include <algorithm>
#include <random>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;

class HeapDepotTest : public HeapTest<Usual> {
 protected:
  void start_threads() {
    Heap<Usual>::become_threaded(pool);
    pool.region.heaps = 2;
  }
  [[nodiscard]] std::size_t kept() const { return heap.statistics().cached_bytes; }
};

TEST_F(HeapDepotTest, AFreedBurstStaysAndComesBack) {
  const auto burst = take_all(1000, 64);
  give_all(burst);
  EXPECT_GE(kept(), std::size_t{1000 * 64});
  auto again = take_all(1000, 64);
  auto before = burst;
  std::ranges::sort(again);
  std::ranges::sort(before);
  EXPECT_EQ(again, before);
  EXPECT_TRUE(reports.empty());
}

TEST_F(HeapDepotTest, TrimEmptiesIt) {
  give_all(take_all(10'000, 64));
  EXPECT_TRUE(heap.trim());
  EXPECT_EQ(kept(), 0U);
  EXPECT_EQ(heap.statistics().region.used_bytes, 0U);
}

TEST_F(HeapDepotTest, TheOnlyHeapKeepsAtMostTheAllowance) {
  give_all(take_all(64 * 1024, 1000));
  const std::size_t allowance = pool.region.allowance() * kSuperblockBytes;
  EXPECT_GT(kept(), allowance / 4);
  EXPECT_LE(kept(), std::max(allowance, 2 * kMiB) * 5 / 4);
}

TEST_F(HeapDepotTest, BlocksFreedAcrossSuperblocksDoNotKeepThem) {
  for (const std::size_t bytes : {500U, 1000U, 5000U, 10'000U}) {
    const std::size_t count = 64 * kMiB / bytes;
    const auto blocks = take_all(count, bytes);
    for (std::size_t i = 0; i < count; ++i) {
      give(blocks[i * 7919 % count]);
    }
    const auto now = heap.statistics();
    EXPECT_LE(now.cached_bytes, 2 * kMiB) << bytes;
    EXPECT_LE(now.region.used_bytes + now.region.dirty_bytes, 24 * kMiB) << bytes;
    EXPECT_TRUE(heap.trim());
  }
}

TEST_F(HeapDepotTest, OneOfSeveralHeapsKeepsAtMostItsShare) {
  const auto live = take_all(64 * 1024, 1000);
  const auto burst = take_all(64 * 1024, 1000);
  start_threads();
  give_all(burst);
  const std::size_t share = pool.region.allowance() * kSuperblockBytes / 2;
  EXPECT_GT(kept(), share / 4);
  EXPECT_LE(kept(), share * 5 / 4);
  give_all(live);
}

TEST_F(HeapDepotTest, ARaisedLimitFallsAgainWhileTheHeapIsUsed) {
  for (int i = 0; i < 6; ++i) {
    give_all(take_all(20 * 1024, 1000));
    now_ms += 20;
  }
  EXPECT_GT(kept(), 8 * kMiB) << "bursts come back";
  now_ms += 2 * pool.region.settings.delay_ms;
  for (int i = 0; i < 100; ++i) {
    give_all(take_all(1000, 64));
  }
  EXPECT_LE(kept(), 2 * kMiB * 5 / 4);
}

TEST_F(HeapDepotTest, MemoryThatCameAndWentReturnsWhileLittleIsUsed) {
  for (int i = 0; i < 10; ++i) {
    give_all(take_all(32 * kMiB / 64, 64));
    now_ms += 20;
  }
  const auto held = [&] {
    const auto now = heap.statistics();
    return now.region.used_bytes + now.region.dirty_bytes;
  };
  EXPECT_GT(held(), 16 * kMiB) << "it comes and goes";
  for (int second = 0; second < 20; ++second) {
    now_ms += 1000;
    for (int i = 0; i < 32 * 1024; ++i) {
      give(take(200));
    }
  }
  EXPECT_LE(held(), 4 * kMiB);
}

TEST_F(HeapDepotTest, APoolOfLargeBlocksAloneLearnsAtOnce) {
  for (int i = 0; i < 3; ++i) {
    give(take(4 * kMiB));
  }
  const std::size_t purged = heap.region().statistics().purged_bytes;
  for (int i = 0; i < 10; ++i) {
    give(take(4 * kMiB));
  }
  EXPECT_EQ(heap.region().statistics().purged_bytes, purged);
}

TEST_F(HeapDepotTest, AFlushEndsTheWaitOfNearlyFreeSuperblocks) {
  if (platform::page_size() > kSuperblockBytes / 16) {
    GTEST_SKIP() << "its pages are of 4 KiB";
  }
  constexpr std::size_t kSuperblocks = 64;
  pool.region.settings.keep_bytes = 0;
  const auto blocks = take_all(kSuperblocks * kSuperblockBytes / 1024, 1024);
  for (void* const block : blocks) {
    if (reinterpret_cast<std::uintptr_t>(block) / 4096 % 8 != 0) {
      give(block);
    }
  }
  heap.flush_cache();
  EXPECT_GE(heap.region().statistics().purged_bytes, (kSuperblocks - 2) * kSuperblockBytes / 8 * 6);
}

class IdleDepotTest : public HeapDepotTest {
 protected:
  IdleDepotTest() {
    start_threads();
    const auto live = take_all(32 * 1024, 1100);
    give_all(take_all(32 * 1024, 1100));
    still_live = live;
    EXPECT_GT(kept(), 2 * kKept) << "the depot has enough to share";
  }
  ~IdleDepotTest() override {
    give_all(still_live);
    EXPECT_TRUE(reports.empty());
  }
  std::vector<void*> take_from_other(std::size_t count, std::size_t bytes) {
    std::vector<void*> blocks(count);
    for (void*& block : blocks) {
      block = other.allocate(bytes);
      block = block != nullptr ? block : other.allocate_slow(bytes);
    }
    return blocks;
  }

  static constexpr std::size_t kKept = Depot<Usual>::kPrivateBytes + kMiB / 4;  // and lists of the cache
  Heap<Usual> other{pool, 1};
  std::vector<void*> still_live;
};

TEST_F(IdleDepotTest, AnotherHeapThatNeedsMemoryEmptiesIt) {
  const std::size_t used = heap.statistics().region.used_bytes;
  const auto blocks = take_from_other(16 * 1024, 600);
  EXPECT_LE(kept(), kKept);
  EXPECT_LE(heap.statistics().region.used_bytes, used + 16 * 1024 * 640 - kMiB)
      << "the other uses its memory";
  give_all(blocks);
}

TEST_F(IdleDepotTest, AboveItsShareItStaysUntilItWasStillForSomeTime) {
  pool.region.heaps = 16;
  const auto work_of_other = [&] {
    auto blocks = take_from_other(4 * 1024, 64);
    Fault fault{};
    for (void* const block : blocks) {
      other.finish_free(other.free(block), block, fault);
    }
  };
  const std::size_t before = kept();
  for (int i = 0; i < 10; ++i) {
    now_ms += 9;
    work_of_other();
    EXPECT_EQ(kept(), before) << "its thread may wait for a processor";
  }
  now_ms += 20;
  work_of_other();
  EXPECT_LE(kept(), kKept);
}

TEST_F(IdleDepotTest, AnotherHeapThatTrimsEmptiesIt) {
  EXPECT_TRUE(other.trim());
  EXPECT_LE(kept(), kKept);
}

TEST_F(HeapDepotTest, SmallBlocksInRandomOrderReturnOnceTheyFillTheCache) {
  std::mt19937 random(1);
  const auto burst = [&](std::size_t count, bool shuffled) {
    auto blocks = take_all(count, 64);
    if (shuffled) {
      std::ranges::shuffle(blocks, random);
    }
    give_all(blocks);
    return kept();
  };
  EXPECT_GE(burst(8 * 1024, true), 8 * 1024 * 64U) << "half of the bound";
  EXPECT_GT(burst(32 * 1024, false), kMiB * 5 / 4);
  EXPECT_LT(burst(32 * 1024, true), 64 * 1024U);
}

TEST_F(HeapDepotTest, BlocksInRandomOrderThatAnotherThreadFreedReturnAtOnce) {
  start_threads();
  Heap<Usual> other(pool, 1);
  std::mt19937 random(1);
  const auto kept_after = [&](bool shared) {
    auto blocks = take_all(8 * 1024, 64);
    std::ranges::shuffle(blocks, random);
    if (shared) {
      for (; blocks.size() > 4 * 1024; blocks.pop_back()) {
        Fault fault{};
        other.finish_free(other.free(blocks.back()), blocks.back(), fault);
      }
      other.drain_remote();
      heap.drain_remote();
      const auto again = take_all(4 * 1024, 64);
      blocks.insert(blocks.end(), again.begin(), again.end());
      std::ranges::shuffle(blocks, random);
    }
    give_all(blocks);
    return kept();
  };
  EXPECT_GE(kept_after(false), 8 * 1024 * 64U);
  EXPECT_TRUE(heap.trim());
  EXPECT_LT(kept_after(true), 64 * 1024U);
  EXPECT_TRUE(reports.empty());
}

TEST_F(HeapDepotTest, AHeapThatFreesTheBlocksOfAnotherKeepsFew) {
  start_threads();
  Heap<Usual> other(pool, 1);
  std::vector<void*> blocks(8 * 1024);
  for (void*& block : blocks) {
    block = other.allocate(1000);
    block = block != nullptr ? block : other.allocate_slow(1000);
  }
  give_all(blocks);  // the first of each superblock as remote frees, then this heap owns it
  EXPECT_LE(kept(), std::size_t{64} * 1024) << "of 8 MiB";
  EXPECT_TRUE(reports.empty());
}

TEST_F(HeapDepotTest, AnotherClassUsesItsMemoryBeforeNewMemory) {
  give_all(take_all(1024, 1000));
  const std::size_t before = heap.statistics().region.used_bytes;
  const auto others = take_all(700, 1400);
  EXPECT_LE(heap.statistics().region.used_bytes, before + before / 4);
  give_all(others);
}

TEST_F(HeapDepotTest, ItIsEmptiedBeforeMemoryInUseExceedsItsPeak) {
  pool.region.settings.keep_bytes = 8 * kMiB;
  give(take(5 * kMiB));
  ASSERT_GT(pool.region.large.kept_bytes(), kMiB) << "free memory, but not for spans";
  give_all(take_all(1024, 3000));
  ASSERT_GT(kept(), 2 * kMiB);
  const auto spans = take_all(80, kSuperblockBytes);
  EXPECT_LT(kept(), kMiB);
  EXPECT_LE(heap.statistics().region.used_bytes, 6 * kMiB) << "of 5 MiB in spans";
  give_all(spans);
}

}  // namespace
}  // namespace heapwright::alloc::test
