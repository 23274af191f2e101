// What the core asks of the operating system.
#include "platform/platform.h"

#include <gtest/gtest.h>

#include <cerrno>
namespace heapwright::alloc::platform {
namespace {

TEST(Platform, KeepsErrno) {
  errno = 77;
  EXPECT_EQ(map(std::size_t{1} << 62U), nullptr);
  EXPECT_EQ(reserve(std::size_t{1} << 62U), nullptr);
  EXPECT_FALSE(map_at(reinterpret_cast<void*>(1), 4096));
  unmap(reinterpret_cast<void*>(1), 1);
  purge(reinterpret_cast<void*>(1), 1);
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
