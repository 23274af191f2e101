// Tests that one thread at a time holds the lock. ThreadSanitizer says whether a thread sees what
// the one before it wrote.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "platform/platform.h"

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

}  // namespace
}  // namespace heapwright::alloc::platform
