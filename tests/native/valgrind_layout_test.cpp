// Tests where Valgrind places mappings, on addresses that Valgrind itself chose (--trace-syscalls).
#include "valgrind_layout.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMiB = 1U << 20U;
constexpr std::uint64_t kLoaderBytes = 0x35000;  // of glibc 2.36

ValgrindLayout begin(std::uint64_t loader = kLoaderBytes, std::uint64_t program_end = 0x40c000,
                     std::uint64_t data_limit = UINT64_MAX) {
  ValgrindLayout layout(kPage);
  layout.start(loader, program_end, data_limit);
  return layout;
}

std::uint64_t map(ValgrindLayout& layout, std::uint64_t length) {
  const std::uint64_t address = layout.place(length);
  layout.occupy(address, length);
  return address;
}

TEST(ValgrindLayout, MappingsFollowLoaderAndDataSegment) {
  auto layout = begin();
  EXPECT_EQ(map(layout, 8192), 0x4835000U);
  layout.preload();
  EXPECT_EQ(map(layout, 41335), 0x483c000U);
  EXPECT_EQ(map(layout, 1974096), 0x4847000U);
}

TEST(ValgrindLayout, AStaticProgramHasNoLoaderAndNothingPreloaded) {
  auto layout = begin(0);
  EXPECT_TRUE(layout.preloaded());
  EXPECT_EQ(map(layout, kMiB), 0x4800000U);
}

TEST(ValgrindLayout, TheDataSegmentHasEightMebibytesOrTheLimit) {
  EXPECT_EQ(begin().brk_bytes(), 8 * kMiB - kPage);
  EXPECT_EQ(begin(kLoaderBytes, 0x40c000, 4 * kMiB).brk_bytes(), 4 * kMiB - kPage);
  EXPECT_EQ(begin(kLoaderBytes, 0x40c000, 100).brk_bytes(), kMiB - kPage);
  EXPECT_EQ(begin(kLoaderBytes, 0x40c000, 4 * kMiB).place(kPage), 0x4435000U);
}

TEST(ValgrindLayout, ALowGapIsTakenFirstIfItIsLongEnough) {
  auto layout = begin();
  const std::uint64_t first = map(layout, 16 * kPage);
  const std::uint64_t second = map(layout, kPage);
  layout.release(first, 16 * kPage);
  EXPECT_EQ(layout.place(17 * kPage), second + kPage);
  EXPECT_EQ(map(layout, 16 * kPage), first);
  layout.release(first + kPage, 2 * kPage);  // the middle of a mapping
  EXPECT_TRUE(layout.is_free(first + kPage, 2 * kPage));
  EXPECT_FALSE(layout.is_free(first + kPage, 3 * kPage));
  EXPECT_EQ(map(layout, kPage), first + kPage);
}

TEST(ValgrindLayout, MappingsPassOverValgrindItself) {
  auto layout = begin();
  EXPECT_EQ(map(layout, 1400 * kMiB), 0x58c2d000U);
  EXPECT_EQ(map(layout, kMiB), 0x4835000U);
}

TEST(ValgrindLayout, AHighProgramKeepsItsPlaceAndItsDataSegmentFollows) {
  auto layout = begin(kLoaderBytes, 0x5000000);
  EXPECT_EQ(layout.place(kPage), 0x5035000U + 8 * kMiB);
}

TEST(ValgrindLayout, NothingBelowTheFirstAddressCounts) {
  auto layout = begin();
  layout.occupy(0x400000, kMiB);
  layout.release(0x400000, kMiB);
  EXPECT_EQ(layout.place(kPage), 0x4835000U);
}

}  // namespace
}  // namespace heapwright::meter
