// What the core asks of the operating system; of the lock, ThreadSanitizer says whether one sees what another
// wrote.
#include "platform/platform.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>
#include <vector>

namespace heapwright::alloc::platform {
namespace {

TEST(Lock, OneAtATime) {
  Lock lock;
  std::size_t count = 0;
  bool inside = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20'000; ++n) {
        lock.lock();
        EXPECT_FALSE(inside);
        inside = true;
        ++count;
        if (n % 512 == 0) {
          std::this_thread::yield();  // with the lock held: the others go to sleep
        }
        inside = false;
        lock.unlock();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(count, 80'000U);
}

TEST(Lock, IsOpenAfterAReset) {
  Lock lock;
  lock.lock();
  lock.reset();
  lock.lock();
  lock.unlock();
}

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
