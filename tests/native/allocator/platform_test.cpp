// Tests the platform functions.
#include "platform/platform.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

namespace heapwright::alloc::platform {
namespace {

TEST(Platform, KeepsErrno) {
  errno = 77;
  EXPECT_EQ(map(std::size_t{1} << 62U), nullptr);
  EXPECT_EQ(reserve(std::size_t{1} << 62U), nullptr);
  EXPECT_FALSE(map_at(reinterpret_cast<void*>(1), 4096));
  EXPECT_FALSE(unmap(reinterpret_cast<void*>(1), 1));
  write_error("", 0);
  EXPECT_EQ(errno, 77);
}

TEST(Platform, NothingMappedIsReplaced) {
  auto* const here = static_cast<char*>(map(page_size()));
  here[0] = 1;
  EXPECT_FALSE(map_at(here, page_size()));
  EXPECT_EQ(here[0], 1);
  unmap(here, page_size());
  EXPECT_TRUE(map_at(here, page_size()));
  EXPECT_EQ(here[0], 0);
  unmap(here, page_size());
}

// Linux before 5.18 purges no memory that is locked: there it is only overwritten.
TEST(Platform, PurgedMemoryReadsAsZeroThoughItIsLocked) {
  constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED, which older C libraries do not know
  auto* const here = static_cast<char*>(map(page_size()));
  ASSERT_EQ(mlock(here, page_size()), 0);
  const bool can_purge = madvise(here, page_size(), kDontNeedLocked) == 0;
  here[7] = 1;
  EXPECT_EQ(resident_pages(here, page_size()), 1U);
  errno = 77;
  purge(here, page_size());
  EXPECT_EQ(errno, 77);
  EXPECT_EQ(resident_pages(here, page_size()), can_purge ? 0U : 1U);
  EXPECT_EQ(here[7], 0);
  EXPECT_TRUE(unmap(here, page_size()));
}

TEST(Platform, FindsAVariableByItsWholeName) {
  char one[] = "AB=no";
  char two[] = "A=yes=1";
  char three[] = "A=later";
  char* environment[] = {one, two, three, nullptr};
  EXPECT_STREQ(environment_value(environment, "A"), "yes=1");
  EXPECT_EQ(environment_value(environment, "B"), nullptr);
  EXPECT_EQ(environment_value(nullptr, "A"), nullptr);
}

}  // namespace
}  // namespace heapwright::alloc::platform
