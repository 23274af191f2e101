// Tests the map from sizes to classes for every size that has a class.
#include "core/size_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "core/carving.h"

namespace heapwright::alloc {
namespace {

template <class Classes>
class SizeClassesTest : public testing::Test {};
using Maps = testing::Types<SizeClasses<4>, SizeClasses<8>, SizeClasses<16>, SizeClasses<32>>;
TYPED_TEST_SUITE(SizeClassesTest, Maps);

TYPED_TEST(SizeClassesTest, EverySizeGetsTheSmallestClassThatHoldsIt) {
  for (std::size_t bytes = 0; bytes <= kLargestClassBytes; ++bytes) {
    const std::size_t number = TypeParam::of(bytes);
    ASSERT_GE(number, TypeParam::kSmallest) << bytes;
    ASSERT_LT(number, TypeParam::kCount) << bytes;
    ASSERT_GE(TypeParam::bytes(number), bytes);
    ASSERT_TRUE(number == TypeParam::kSmallest || TypeParam::bytes(number - 1) < bytes) << bytes;
  }
}

// The promise at the head of size_classes.h: a block is at most 1/(P+1) of its own size larger
// than the size asked for plus one byte; below 16·P bytes, at most 15 bytes.
TYPED_TEST(SizeClassesTest, TheWorstWasteIsAsStated) {
  const std::size_t per_doubling = (TypeParam::kCount - TypeParam::kSmallest) / (TypeParam::kDoublings + 1);
  double worst = 0;
  for (std::size_t bytes = 1; bytes <= kLargestClassBytes; ++bytes) {
    const std::size_t size = TypeParam::bytes(TypeParam::of(bytes));
    if (bytes <= TypeParam::kGranule * per_doubling) {
      ASSERT_LT(size - bytes, TypeParam::kGranule) << bytes;
    } else {
      ASSERT_LE((size - bytes) * (per_doubling + 1), size) << bytes;
      worst = std::max(worst, static_cast<double>(size - bytes) / static_cast<double>(size));
    }
  }
  const double stated = 1.0 / static_cast<double>(per_doubling + 1);
  EXPECT_LE(worst, stated);
  EXPECT_GT(worst, stated * 0.99) << "the statement is no longer the tightest";
}

TYPED_TEST(SizeClassesTest, SizesAreMultiplesOfTheGranuleAndRiseToTheLargest) {
  std::size_t before = 0;
  for (std::size_t number = TypeParam::kSmallest; number < TypeParam::kCount; ++number) {
    const std::size_t size = TypeParam::bytes(number);
    EXPECT_GT(size, before);
    EXPECT_EQ(size % TypeParam::kGranule, 0U);
    before = size;
  }
  EXPECT_EQ(before, kLargestClassBytes);
}

TYPED_TEST(SizeClassesTest, PowersOfTwoAreClassesOfTheirOwn) {
  for (std::size_t bytes = TypeParam::kGranule; bytes <= kLargestClassBytes; bytes *= 2) {
    EXPECT_EQ(TypeParam::bytes(TypeParam::of(bytes)), bytes);
  }
}

TYPED_TEST(SizeClassesTest, AnAlignedClassIsTheSmallestThatIsAMultiple) {
  for (std::size_t alignment = 1; alignment <= kLargestClassBytes; alignment *= 2) {
    for (std::size_t bytes = 0; bytes <= kLargestClassBytes; bytes += 13) {
      const std::size_t number = TypeParam::aligned(bytes, alignment);
      ASSERT_NE(number, 0U) << bytes << " at " << alignment;
      const std::size_t size = TypeParam::bytes(number);
      ASSERT_GE(size, bytes);
      ASSERT_EQ(size % alignment, 0U);
      ASSERT_TRUE(alignment <= kCacheLineBytes || TypeParam::colours(number) == 1);
      for (std::size_t smaller = TypeParam::of(bytes); TypeParam::bytes(smaller) < size; ++smaller) {
        ASSERT_NE(TypeParam::bytes(smaller) % alignment, 0U);
      }
    }
  }
}

// With all colours, the first cache lines of blocks share no bit of their addresses.
TYPED_TEST(SizeClassesTest, MultiplesOf256BytesUpTo2KiBHaveAllColours) {
  for (std::size_t number = TypeParam::kSmallest; number < TypeParam::kCount; ++number) {
    const std::size_t size = TypeParam::bytes(number);
    std::size_t colours = 1;
    while (size % 256 == 0 && size <= 2048 && size % (2 * colours * kCacheLineBytes) == 0) {
      colours *= 2;
    }
    EXPECT_EQ(TypeParam::colours(number), colours) << size;
  }
  for (std::size_t number = 1; number < TypeParam::kSmallest; ++number) {
    EXPECT_EQ(TypeParam::colours(number), 1U) << "an aligned class";
  }
}

TYPED_TEST(SizeClassesTest, NothingInAClassIsAlignedToMoreThanTheLargest) {
  EXPECT_EQ(TypeParam::aligned(16, kLargestClassBytes * 2), 0U);
}

// A multiplication stands for the division by a class's size: which addresses begin a block. Proven
// for all, in superblocks of all colours.
TYPED_TEST(SizeClassesTest, TheReciprocalDividesEveryOffsetExactly) {
  for (std::size_t number = 1; number < TypeParam::kCount; ++number) {
    const std::size_t size = TypeParam::bytes(number);
    std::array<Superblock, kSuperblocksInChunk> superblocks{};
    std::set<std::size_t> shifts;
    for (Superblock& superblock : superblocks) {
      describe_superblock(&superblock, number, size, TypeParam::colours(number));
      const std::size_t first = superblock.first;
      ASSERT_LE(first + superblock.capacity * size, kSuperblockBytes);
      if (!shifts.insert(first).second) {
        continue;
      }
      const auto* const memory = reinterpret_cast<const char*>(kChunkBytes);
      for (std::size_t offset = 0; offset < kSuperblockBytes; offset += TypeParam::kGranule) {
        ASSERT_EQ(begins_block(&superblock, memory + offset), offset >= first && (offset - first) % size == 0)
            << offset << " of " << size << " from " << first;
      }
    }
    ASSERT_EQ(shifts.size(), TypeParam::colours(number)) << size;
  }
}

}  // namespace
}  // namespace heapwright::alloc
