// Tests the map from sizes to classes for every size that has a class.
#include "core/size_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

namespace heapwright::alloc {
namespace {

template <class Classes>
class SizeClassesTest : public testing::Test {};
using Maps = testing::Types<SizeClasses<4>, SizeClasses<8>, SizeClasses<16>, SizeClasses<32>>;
TYPED_TEST_SUITE(SizeClassesTest, Maps);

TYPED_TEST(SizeClassesTest, EverySizeGetsTheSmallestClassThatHoldsIt) {
  for (std::size_t bytes = 0; bytes <= kLargestClassBytes; ++bytes) {
    const std::size_t number = TypeParam::of(bytes);
    ASSERT_GE(number, 1U) << bytes;
    ASSERT_LT(number, TypeParam::kCount) << bytes;
    ASSERT_GE(TypeParam::bytes(number), bytes);
    ASSERT_TRUE(number == 1 || TypeParam::bytes(number - 1) < bytes) << bytes;
  }
}

// The promise at the head of size_classes.h: a block is at most 1/(P+1) of its own size larger
// than the size asked for plus one byte; below 16·P bytes, at most 15 bytes.
TYPED_TEST(SizeClassesTest, TheWorstWasteIsAsStated) {
  const std::size_t per_doubling = (TypeParam::kCount - 1) / (TypeParam::kDoublings + 1);
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
  for (std::size_t number = 1; number < TypeParam::kCount; ++number) {
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
      ASSERT_GE(TypeParam::bytes(number), bytes);
      ASSERT_EQ(TypeParam::bytes(number) % alignment, 0U);
      for (std::size_t smaller = TypeParam::of(bytes); smaller < number; ++smaller) {
        ASSERT_NE(TypeParam::bytes(smaller) % alignment, 0U);
      }
    }
  }
}

TYPED_TEST(SizeClassesTest, NothingInAClassIsAlignedToMoreThanTheLargest) {
  EXPECT_EQ(TypeParam::aligned(16, kLargestClassBytes * 2), 0U);
}

// A multiplication stands for the division by a class's size: which granules begin a block. Proven
// for all.
TYPED_TEST(SizeClassesTest, TheReciprocalDividesEveryOffsetExactly) {
  for (std::size_t number = 1; number < TypeParam::kCount; ++number) {
    const std::uint64_t granules = TypeParam::bytes(number) / TypeParam::kGranule;
    const auto reciprocal = static_cast<std::uint32_t>(((std::uint64_t{1} << 32U) + granules - 1) / granules);
    const std::size_t end = kSuperblockBytes / TypeParam::kGranule;
    for (std::uint32_t offset = 0; offset < end; ++offset) {
      ASSERT_EQ(offset * reciprocal < kSuperblockBytes, offset % granules == 0)
          << offset << " of " << granules;
    }
  }
}

}  // namespace
}  // namespace heapwright::alloc
