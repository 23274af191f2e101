// Tests the platform functions.
#include "platform/platform.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

// Linux before 5.18 purges no memory that is locked, nor does qemu's user emulation: there it is
// only overwritten.
TEST(Platform, PurgedMemoryReadsAsZeroThoughItIsLocked) {
  constexpr int kDontNeedLocked = 24;  // MADV_DONTNEED_LOCKED, which older C libraries do not know
  auto* const here = static_cast<char*>(map(page_size()));
  ASSERT_EQ(mlock(here, page_size()), 0);
  here[7] = 1;
  const bool can_purge = madvise(here, page_size(), kDontNeedLocked) == 0 && here[7] == 0;
  here[7] = 1;
  EXPECT_EQ(resident_pages(here, page_size()), 1U);
  errno = 77;
  purge(here, page_size());
  EXPECT_EQ(errno, 77);
  EXPECT_EQ(resident_pages(here, page_size()), can_purge ? 0U : 1U);
  EXPECT_EQ(here[7], 0);
  EXPECT_TRUE(unmap(here, page_size()));
}

TEST(Platform, ClearedMemoryReadsAsZeroAndUntouchedPagesStaySo) {
  const std::size_t page = page_size();
  constexpr std::size_t kPages = 1100;  // more than mincore is asked for at once
  auto* const here = static_cast<char*>(map(kPages * page));
  madvise(here, kPages * page, MADV_NOHUGEPAGE);  // else untouched pages may become resident
  std::size_t touched = 0;
  for (std::size_t i = 0; i < kPages; i += i < 300 ? 1 : 7) {
    std::memset(here + i * page, 1, page);
    ++touched;
  }
  const std::size_t bytes = (kPages - 1) * page + 10;  // the rest of the last page is not cleared
  std::memset(here + (kPages - 1) * page, 1, page);
  errno = 77;
  clear(here, bytes);
  EXPECT_EQ(errno, 77);
  std::size_t resident = 0;
  for (std::size_t i = 0; i < kPages; ++i) {
    resident += resident_pages(here + i * page, page);
  }
  EXPECT_GE(resident, touched);
  EXPECT_LE(resident, touched + 1);
  EXPECT_TRUE(std::all_of(here, here + bytes, [](char c) { return c == 0; }));
  EXPECT_EQ(here[bytes], 1);
  EXPECT_TRUE(unmap(here, kPages * page));
}

TEST(Platform, OrdersThreadsIfTheKernelCan) {
  errno = 77;
  if (may_order_all_threads()) {
    EXPECT_TRUE(order_all_threads());
    const pid_t child = fork();
    if (child == 0) {
      _exit(order_all_threads() ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0) << "children inherit it";
  }
  EXPECT_EQ(errno, 77);
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
