// Tests the groups of sizes and the numbers by which a sample chooses its objects.
#include "sample_choice/sample_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

namespace heapwright::sample_choice {
namespace {

TEST(SampleGroup, GrowsWithTheSize) {
  EXPECT_EQ(sample_group(0), 0U);
  EXPECT_EQ(sample_group(15), 0U);
  EXPECT_EQ(sample_group(16), 1U);
  EXPECT_EQ(sample_group(kDrawBytes - 1), kSmallGroups - 1);
  EXPECT_EQ(sample_group(kDrawBytes), kSmallGroups);
  EXPECT_EQ(sample_group(kDrawBytes * 5 / 4 - 1), kSmallGroups);
  EXPECT_EQ(sample_group(kDrawBytes * 5 / 4), kSmallGroups + 1);
  EXPECT_EQ(sample_group(2 * kDrawBytes), kSmallGroups + 4);
  EXPECT_EQ(sample_group(~std::uint64_t{0}), kSmallGroups + kLargeGroups - 1);
  for (std::uint64_t size = 1; size < (std::uint64_t{1} << 40); size += 1 + size / 9) {
    EXPECT_LE(sample_group(size - 1), sample_group(size));
    EXPECT_LE(sample_group(size) - sample_group(size - 1), 1U);
  }
}

TEST(EvenNumbers, EachPartHasItsShareOfAnyThatFollowAndOfEverySecondOrThird) {
  for (std::uint64_t start = 0; start < 20; ++start) {
    for (const int step : {1, 2, 3, 64}) {
      for (const double share : {1.0 / 64, 0.1, 0.7}) {
        EvenNumbers numbers;
        numbers.begin(start * 0x123456789abcdefU);
        int below = 0;
        constexpr int kCount = 4000;
        for (int i = 0; i < kCount * step; ++i) {
          const double number = numbers.next();
          EXPECT_TRUE(number >= 0 && number < 1);
          below += i % step == 0 && number < share ? 1 : 0;
        }
        EXPECT_LT(std::abs(below - share * kCount), 4) << start << " " << step << " " << share;
      }
    }
  }
}

}  // namespace
}  // namespace heapwright::sample_choice
