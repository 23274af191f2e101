// Tests a heap's rules one by one, in several configurations. heap_model_test.cpp has random
// operations.
#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

TYPED_TEST_SUITE(HeapTest, Configurations);

TYPED_TEST(HeapTest, TouchesNothingUntilItIsUsed) {
  EXPECT_EQ(this->heap.allocate(16), nullptr);
  EXPECT_EQ(this->heap.region().bytes(), 0U);
  int here = 0;
  EXPECT_EQ(this->heap.usable(&here), 0U);
  EXPECT_EQ(this->heap.class_size(&here), 0U);
  EXPECT_FALSE(this->heap.trim());
  const Statistics s = this->heap.statistics();
  EXPECT_EQ(s.live_bytes + s.live_blocks + s.cached_bytes + s.large_bytes + s.region.region_bytes, 0U);
}

TYPED_TEST(HeapTest, EverySizeIsUsableAlignedAndWithinTheStatedWaste) {
  using Classes = typename Heap<TypeParam>::Classes;
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = 0; bytes <= 4096; ++bytes) {
    sizes.push_back(bytes);
  }
  for (std::size_t bytes = 4096; bytes < 3 * kLargestSpanBytes; bytes += bytes / 13) {
    sizes.insert(sizes.end(), {bytes - 1, bytes, bytes + 1});
  }
  for (const std::size_t edge : {kLargestClassBytes, kSuperblockBytes, kLargestSpanBytes}) {
    sizes.insert(sizes.end(), {edge - 1, edge, edge + 1});
  }
  for (const std::size_t bytes : sizes) {
    auto* const block = static_cast<unsigned char*>(this->take(bytes));
    ASSERT_NE(block, nullptr) << bytes;
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % 16, 0U);
    const std::size_t usable = this->heap.usable(block);
    if (bytes <= kLargestClassBytes) {
      ASSERT_EQ(usable, Classes::bytes(Classes::of(bytes)));
      ASSERT_EQ(this->heap.class_size(block), usable);
    } else {
      ASSERT_EQ(usable, round_up(bytes, platform::page_size()));
      ASSERT_EQ(this->heap.class_size(block), 0U);
    }
    std::memset(block, 0xa5, usable);
    this->give(block);
  }
  EXPECT_TRUE(reports.empty());
}

TYPED_TEST(HeapTest, TheBlockFreedLastIsReusedFirst) {
  if (TypeParam::kCacheBlocksPerClass < 4) {
    GTEST_SKIP() << "a list this short keeps none";
  }
  void* const one = this->take(40);
  void* const two = this->take(40);
  this->give(one);
  this->give(two);
  EXPECT_EQ(this->take(40), two);
  EXPECT_EQ(this->take(40), one);
}

TYPED_TEST(HeapTest, BlocksAreAtMultiplesOfAnyAlignment) {
  for (std::size_t alignment = 1; alignment <= std::size_t{8} << 20U; alignment *= 2) {
    for (const std::size_t bytes : {0, 1, 24, 100, 1000, 5000, 33'000, 70'000, 1'000'000, 3'000'000}) {
      void* const block = this->heap.allocate_aligned(bytes, alignment);
      ASSERT_NE(block, nullptr) << bytes << " at " << alignment;
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U);
      ASSERT_GE(this->heap.usable(block), bytes);
      std::memset(block, 1, bytes);
      this->give(block);
    }
  }
  EXPECT_TRUE(reports.empty());
}

// Blocks of these sizes lie in shifted superblocks, unless they are aligned.
TYPED_TEST(HeapTest, AlignedBlocksAreAlignedAmongOthersOfTheirSize) {
  for (std::size_t alignment = 128; alignment <= 4096; alignment *= 2) {
    for (std::size_t bytes = 256; bytes <= 2048; bytes += 256) {
      for (int i = 0; i < 100; ++i) {
        this->take(bytes);
        const void* const block = this->heap.allocate_aligned(bytes, alignment);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U) << bytes;
        ASSERT_EQ(this->heap.usable(block), round_up(bytes, alignment));
      }
    }
  }
}

// The processor's first-level cache finds a line by the bits 6 to 11 of its address. Blocks of one
// size that begin in a few of the 64 sets evict each other.
TYPED_TEST(HeapTest, BlocksOfPowersOfTwoBeginInAllSetsOfTheCache) {
  constexpr std::size_t kSets = 64;
  for (const std::size_t bytes : {256, 512, 768, 1000, 1024, 1536, 2048}) {
    std::array<std::size_t, kSets> begin_in{};
    constexpr std::size_t kBlocks = 64 * 64;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      ++begin_in[reinterpret_cast<std::uintptr_t>(this->take(bytes)) / kCacheLineBytes % kSets];
    }
    EXPECT_GT(*std::ranges::min_element(begin_in), kBlocks / kSets / 3) << bytes;
    EXPECT_LT(*std::ranges::max_element(begin_in), kBlocks / kSets * 2) << bytes;
  }
}

TYPED_TEST(HeapTest, MemoryReportedAsZeroReadsAsZero) {
  const auto check = [&](std::size_t bytes) {
    auto* const block = static_cast<unsigned char*>(this->heap.allocate_slow(bytes));
    const std::size_t usable = this->heap.usable(block);
    if (this->heap.is_zero(block)) {
      ASSERT_TRUE(std::all_of(block, block + usable, [](unsigned char c) { return c == 0; })) << bytes;
    }
    std::memset(block, 1, usable);
    this->give(block);
  };
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t bytes : {16, 5000, 40'000, 300'000, 1'048'576, 2'000'000}) {
      check(bytes);
    }
    this->heap.trim();
  }
}

TYPED_TEST(HeapTest, FreshLargeMemoryIsKnownToBeZero) {
  for (const std::size_t bytes : {300'000, 700'000, 2'000'000}) {
    const void* const block = this->heap.allocate_slow(bytes);
    EXPECT_TRUE(this->heap.is_zero(block)) << "calloc would write what reads as zero";
  }
}

TYPED_TEST(HeapTest, ABlockOfAClassStaysForWhatItHoldsWell) {
  using H = Heap<TypeParam>;
  void* const block = this->take(1000);
  const std::size_t size = this->heap.usable(block);
  EXPECT_EQ(this->heap.resize(block, size), block);
  EXPECT_EQ(this->heap.resize(block, size / 2), block);
  EXPECT_EQ(this->heap.resize(block, size + 1), nullptr);
  EXPECT_EQ(this->heap.resize(block, size / 2 - 1), nullptr) << "half of it would be wasted";
  EXPECT_FALSE(H::fits_in_place(0, 1)) << "no class";
  EXPECT_TRUE(H::fits_in_place(16, 1));
}

TYPED_TEST(HeapTest, ASpanShrinksAndGrowsWhereItStands) {
  auto* const block = static_cast<char*>(this->take(14 * kSuperblockBytes));
  std::memset(block, 3, 14 * kSuperblockBytes);
  EXPECT_EQ(this->heap.resize(block, 6 * kSuperblockBytes), block);
  EXPECT_EQ(this->heap.usable(block), 6 * kSuperblockBytes);
  EXPECT_EQ(this->heap.statistics().live_bytes, 6 * kSuperblockBytes);
  EXPECT_EQ(this->heap.resize(block, 13 * kSuperblockBytes + 1), block);
  EXPECT_EQ(this->heap.usable(block), 13 * kSuperblockBytes + platform::page_size());
  EXPECT_EQ(this->heap.resize(block, 14 * kSuperblockBytes), block) << "in the superblocks that it has";
  EXPECT_EQ(this->heap.usable(block), 14 * kSuperblockBytes);
  EXPECT_TRUE(std::all_of(block, block + 6 * kSuperblockBytes, [](char c) { return c == 3; }));
  EXPECT_EQ(this->heap.resize(block, 100), nullptr) << "belongs in a class";
  EXPECT_EQ(this->heap.resize(block, SIZE_MAX), nullptr);
  EXPECT_EQ(this->heap.resize(block, kLargestSpanBytes + 1), nullptr) << "belongs in a mapping";
}

TYPED_TEST(HeapTest, ALargeBlockIsResizedByItsMapping) {
  auto* block = static_cast<char*>(this->take(5'000'000));
  block[0] = block[4'999'999] = 5;
  block = static_cast<char*>(this->heap.resize(block, 50'000'000));
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(block[0] + block[4'999'999] + block[49'999'999], 10);
  EXPECT_EQ(this->heap.statistics().large_bytes, round_up(50'000'000, platform::page_size()));
  EXPECT_EQ(this->heap.resize(block, std::size_t{1} << 62U), nullptr);
  EXPECT_EQ(this->heap.resize(block, SIZE_MAX), nullptr);
  EXPECT_EQ(this->heap.resize(block, 1000), nullptr);
  this->give(block);
  EXPECT_EQ(this->heap.statistics().large_bytes, 0U);
}

TYPED_TEST(HeapTest, ALargeBlockUsesMemoryThatIsFree) {
  void* const span = this->take(10 * kSuperblockBytes);
  void* const next = this->take(14 * kSuperblockBytes);
  std::memset(span, 1, 10 * kSuperblockBytes);
  std::memset(next, 1, 14 * kSuperblockBytes);
  this->give(span);
  this->give(next);
  const std::size_t bytes = 24 * kSuperblockBytes;
  auto* const block = static_cast<char*>(this->take(bytes));
  EXPECT_EQ(block, span);
  EXPECT_FALSE(this->heap.is_zero(block));
  EXPECT_EQ(this->heap.statistics().large_bytes, 0U);
  EXPECT_EQ(this->heap.resize(block, bytes - kSuperblockBytes), block);
  EXPECT_EQ(this->heap.resize(block, bytes), block) << "the superblock behind it is free and holds memory";
  EXPECT_EQ(this->heap.resize(block, bytes + 1), nullptr) << "the one behind that does not";
  void* const other = this->take(2 * bytes);
  EXPECT_FALSE(this->pool.region.contains(other)) << "not enough memory is free";
  this->give(block);
  this->give(other);
}

TYPED_TEST(HeapTest, TheLongestSpanGrowsOnlyIntoMemoryThatIsFree) {
  void* const span = this->take(kLargestSpanBytes);
  EXPECT_EQ(this->heap.resize(span, kLargestSpanBytes + kSuperblockBytes), nullptr);
  void* const behind = this->take(10 * kSuperblockBytes);
  std::memset(behind, 1, 10 * kSuperblockBytes);
  this->give(behind);
  EXPECT_EQ(this->heap.resize(span, kLargestSpanBytes + 4 * kSuperblockBytes), span);
}

TYPED_TEST(HeapTest, PrematurePurgesOfLargeBlocksArePaidForWhenTheRegionStarts) {
  const auto up_and_down = [this] {
    std::array<void*, 16> blocks{};
    std::ranges::generate(blocks, [this] { return this->take(8'000'000); });
    std::ranges::for_each(blocks, [this](void* block) { this->give(block); });
  };
  for (int i = 0; i < 3; ++i) {
    up_and_down();
  }
  this->take(100);
  now_ms += 60'000;
  up_and_down();
  EXPECT_LE(this->pool.region.large.kept_bytes(), this->pool.region.settings.keep_bytes);
}

TYPED_TEST(HeapTest, SizesThatCannotBeAreRefused) {
  for (const std::size_t bytes :
       {std::size_t{PTRDIFF_MAX}, std::size_t{PTRDIFF_MAX} + 1, SIZE_MAX, SIZE_MAX - 70'000}) {
    EXPECT_EQ(this->heap.allocate_slow(bytes), nullptr);
    EXPECT_EQ(this->heap.allocate_aligned(bytes, 4096), nullptr);
  }
  EXPECT_EQ(this->heap.allocate_aligned(16, std::size_t{1} << 63U), nullptr);
  EXPECT_EQ(this->heap.allocate_aligned(16, std::size_t{1} << 62U), nullptr);
  EXPECT_NE(this->take(16), nullptr);
}

TYPED_TEST(HeapTest, HoldsItsLimitAndGoesOnAfterAFree) {
  constexpr std::size_t kLimit = 32 * kChunkBytes;
  this->heap.region().settings.limit_bytes = kLimit;
  for (const std::size_t bytes :
       {std::size_t{16}, std::size_t{3000}, std::size_t{200'000}, std::size_t{2'000'000}}) {
    std::vector<void*> blocks;
    for (void* block = this->take(bytes); block != nullptr; block = this->take(bytes)) {
      blocks.push_back(block);
      ASSERT_LE(blocks.size() * bytes, kLimit);
    }
    const Statistics s = this->heap.statistics();
    EXPECT_LE(s.region.region_bytes + s.large_bytes, kLimit);
    EXPECT_GT(s.live_bytes, kLimit / 2) << "refused with half of it unused";
    this->give(blocks.back());
    void* const again = this->take(bytes);
    EXPECT_NE(again, nullptr);
    blocks.back() = again;
    for (void* const block : blocks) {
      this->give(block);
    }
  }
}

// What small blocks left free at the end of the region is given up for a large one that needs the
// room.
TYPED_TEST(HeapTest, ALargeBlockMayHaveWhatTheRegionDoesNotNeed) {
  this->heap.region().settings.limit_bytes = 16 * kChunkBytes;
  std::vector<void*> blocks;
  for (void* block = this->take(3000); block != nullptr; block = this->take(3000)) {
    blocks.push_back(block);
  }
  for (void* const block : blocks) {
    this->give(block);
  }
  EXPECT_NE(this->take(12 * kChunkBytes), nullptr);
}

TYPED_TEST(HeapTest, TrimGivesEverythingBack) {
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 20'000; ++i) {
    const std::size_t bytes = 1 + i * i % 9000;
    blocks.push_back(this->take(bytes));
    std::memset(blocks.back(), 1, bytes);
  }
  blocks.push_back(this->take(900'000));
  std::memset(blocks.back(), 1, 900'000);
  char* const base = reinterpret_cast<char*>(this->heap.region().base());
  const std::size_t chunks = this->heap.region().bytes() / kChunkBytes;
  const auto in_memory = [&] { return resident(base, chunks * kChunkBytes).value_or(SIZE_MAX); };
  EXPECT_GT(in_memory(), std::size_t{50'000'000});
  for (void* const block : blocks) {
    this->give(block);
  }
  EXPECT_TRUE(this->heap.trim());
  EXPECT_LE(in_memory(), chunks * platform::page_size()) << "a page of descriptions for each chunk";
  EXPECT_FALSE(this->heap.trim());
  const Statistics s = this->heap.statistics();
  EXPECT_EQ(s.live_bytes + s.live_blocks + s.cached_bytes + s.region.used_bytes + s.region.dirty_bytes, 0U);
}

// No page is touched before a block on it is handed out.
TYPED_TEST(HeapTest, CarvesPageByPage) {
  static_cast<char*>(this->take(16))[0] = 1;
  const char* const base = reinterpret_cast<const char*>(this->heap.region().base());
  EXPECT_LE(*resident(base, kChunkBytes), 2 * platform::page_size());
  void* const big = this->take(20'000);
  EXPECT_EQ(*resident(memory_of(superblock_of(big)), kSuperblockBytes), platform::page_size())
      << "the end of the list before it";
}

// A second thread is about to start: another heap takes over everything, and the first one's fast
// paths fail.
TYPED_TEST(HeapTest, CarvesAllBlocksThatBeginOnAPage) {
  if (TypeParam::kCacheBlocksPerClass < 4) {
    GTEST_SKIP() << "a refill brings one block";
  }
  const auto* const first = static_cast<const char*>(this->take(3000));
  EXPECT_EQ(this->heap.allocate_class_from_list(3000), first + 3072);
  EXPECT_EQ(*resident(memory_of(superblock_of(first)), kSuperblockBytes), platform::page_size());
}

TYPED_TEST(HeapTest, AnotherHeapTakesOver) {
  std::vector<void*> before;
  for (int i = 0; i < 300; ++i) {
    before.push_back(this->take(48));
  }
  this->give(before.back());
  before.pop_back();
  Heap<TypeParam>::become_threaded(this->pool);
  Heap<TypeParam> other(this->pool);
  other.take_over(this->heap);
  std::set<void*> blocks(before.begin(), before.end());
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(this->heap.allocate(48), nullptr);
    void* const fast = other.allocate(48);
    void* const block = fast != nullptr ? fast : other.allocate_slow(48);
    ASSERT_TRUE(blocks.insert(block).second) << "handed out twice";
    ASSERT_EQ(this->heap.class_size(block), 0U);
    ASSERT_EQ(other.usable(block), other.usable(before[0]));
  }
  EXPECT_EQ(other.statistics().live_blocks, blocks.size());
  for (void* const block : blocks) {
    ASSERT_EQ(this->heap.free_single_threaded(block), FreeResult::kSlow);
    const auto freed = other.free(block);
    ASSERT_NE(freed, FreeResult::kSlow);
    Fault fault{};
    ASSERT_TRUE(other.finish_free(freed, block, fault));
  }
  other.trim();
  EXPECT_EQ(other.statistics().live_blocks, 0U);
  EXPECT_TRUE(reports.empty());
}

// Options are read when blocks are out and lists are long already.
TYPED_TEST(HeapTest, AShorterCacheLaterIsNoFault) {
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) {
    blocks.push_back(this->take(16));
  }
  this->heap.set_cache_bytes(64);
  for (void* const block : blocks) {
    this->give(block);
  }
  this->heap.trim();
  EXPECT_TRUE(reports.empty());
  EXPECT_EQ(this->heap.statistics().live_blocks, 0U);
}

}  // namespace
}  // namespace heapwright::alloc::test
