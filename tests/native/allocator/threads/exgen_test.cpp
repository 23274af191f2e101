// Tests exgen in processes that become multi-threaded. Each test is a process of its own. All names
// of the library are hidden but those of exgen.h, so that a sanitizer keeps the malloc it needs.
// The library's pthread_create and thrd_create have names of their own here.
#include "include/exgen.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <threads.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

extern "C" int exgen_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                                    void* argument);
extern "C" int exgen_thrd_create(thrd_t* thread, thrd_start_t body, void* argument);

namespace {

constexpr int kThreads = 4;

struct Block {
  unsigned char* address;
  std::size_t bytes;
  unsigned char fill;
};

Block take(std::mt19937& random) {
  const std::size_t bytes = random() % 50 == 0 ? random() % 2'000'000 : 1 + random() % 700;
  const auto fill = static_cast<unsigned char>(random());
  auto* const address = static_cast<unsigned char*>(exgen_malloc(bytes));
  if (address != nullptr) {
    std::memset(address, fill, bytes < 700 ? bytes : 700);
  }
  return {address, bytes, fill};
}
bool give(const Block& block) {
  bool same = block.address != nullptr && exgen_usable_size(block.address) >= block.bytes;
  for (std::size_t i = 0; same && i < block.bytes && i < 700; ++i) {
    same = block.address[i] == block.fill;
  }
  exgen_free(block.address);
  return same;
}

// A ring of threads: each allocates blocks, hands some to the next, and frees those it receives.
class Ring {
 public:
  explicit Ring(int operations) : operations_(operations) {}
  ~Ring() {
    for (auto& mail : mail_) {
      for (const Block& block : mail) {
        EXPECT_TRUE(give(block));
      }
    }
  }
  void hand(std::size_t to, const Block& block) {
    const std::lock_guard guard(mutexes_[to]);
    mail_[to].push_back(block);
  }
  void work(std::size_t me) {
    std::mt19937 random(static_cast<unsigned>(me));  // NOLINT: the same sequence every time
    std::vector<Block> own;
    for (int i = 0; i < operations_; ++i) {
      own.push_back(take(random));
      if (random() % 2 == 0) {
        hand((me + 1) % kThreads, own.back());
        own.pop_back();
      } else if (own.size() > 100) {
        right_ = give(own.front()) && right_;
        own.erase(own.begin());
      }
      Block block{};
      {
        const std::lock_guard guard(mutexes_[me]);
        if (!mail_[me].empty()) {
          block = mail_[me].front();
          mail_[me].pop_front();
        }
      }
      if (block.address != nullptr) {
        right_ = give(block) && right_;
      }
      if (i % 1000 == 0) {
        exgen_trim();
      }
    }
    for (const Block& block : own) {
      right_ = give(block) && right_;
    }
  }
  [[nodiscard]] bool right() const { return right_; }

 private:
  int operations_;
  std::atomic<bool> right_ = true;
  std::array<std::mutex, kThreads> mutexes_;
  std::array<std::deque<Block>, kThreads> mail_;
};

struct Job {
  Ring* ring;
  std::size_t number;
};
void* run_job(void* job) {
  static_cast<Job*>(job)->ring->work(static_cast<Job*>(job)->number);
  return nullptr;
}

// Blocks that one thread allocated before there were others, in lists of every length.
void prepare(Ring& ring, int count) {
  std::mt19937 random(99);  // NOLINT: the same sequence every time
  for (int i = 0; i < count; ++i) {
    ring.hand(random() % kThreads, take(random));
    if (i % 3 == 0) {
      EXPECT_TRUE(give(take(random)));
    }
  }
}

TEST(ExgenThreads, AnnouncedByItsPthreadCreate) {
  {
    Ring ring(4000);
    prepare(ring, 3000);
    std::array<pthread_t, kThreads> threads{};
    std::array<Job, kThreads> jobs{};
    for (std::size_t i = 0; i < kThreads; ++i) {
      jobs[i] = {&ring, i};
      ASSERT_EQ(exgen_pthread_create(&threads[i], nullptr, run_job, &jobs[i]), 0);
    }
    for (const pthread_t thread : threads) {
      pthread_join(thread, nullptr);
    }
    EXPECT_TRUE(ring.right()) << "a block lost its contents";
  }
  exgen_trim();  // blocks in remote queues count as live
  exgen_statistics s{};
  exgen_get_statistics(&s);
  EXPECT_EQ(s.live, 0U);
  EXPECT_EQ(s.blocks, 0U);
}

// Threads that the library did not see come are noticed by the next slow path: until then there is
// no promise.
TEST(ExgenThreads, NoticedByTheFlagOfTheCLibraryInTheNextSlowPath) {
  static std::atomic<int> waiting;
  static std::atomic<bool> go;
  Ring ring(4000);
  prepare(ring, 3000);
  std::array<pthread_t, kThreads> threads{};
  std::array<Job, kThreads> jobs{};
  for (std::size_t i = 0; i < kThreads; ++i) {
    jobs[i] = {&ring, i};
    const auto body = [](void* job) {
      for (++waiting; !go;) {
        std::this_thread::yield();
      }
      return run_job(job);
    };
    ASSERT_EQ(pthread_create(&threads[i], nullptr, body, &jobs[i]), 0);
  }
  while (waiting < kThreads) {
    std::this_thread::yield();
  }
  exgen_statistics s{};
  exgen_get_statistics(&s);
  EXPECT_GT(s.live, 0U);
  go = true;
  for (const pthread_t thread : threads) {
    pthread_join(thread, nullptr);
  }
  EXPECT_TRUE(ring.right()) << "a block lost its contents";
}

TEST(ExgenThreads, AnnouncedByItsThrdCreate) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer does not know thrd_create";
#endif
  thrd_t thread{};
  Ring ring(2000);
  prepare(ring, 1000);
  static Ring* shared = &ring;
  ASSERT_EQ(exgen_thrd_create(
                &thread,
                [](void*) {
                  shared->work(0);
                  return 7;
                },
                nullptr),
            thrd_success);
  ring.work(1);
  int result = 0;
  thrd_join(thread, &result);
  EXPECT_EQ(result, 7);
  EXPECT_TRUE(ring.right());
}

TEST(ExgenThreads, OneThreadAfterAnotherStaysRight) {
  for (int round = 0; round < 20; ++round) {
    Ring ring(200);
    prepare(ring, 100);
    Job job{&ring, static_cast<std::size_t>(round % kThreads)};
    pthread_t thread{};
    ASSERT_EQ(exgen_pthread_create(&thread, nullptr, run_job, &job), 0);
    pthread_join(thread, nullptr);
    EXPECT_TRUE(ring.right());
  }
}

TEST(ExgenThreads, AChildOfForkFindsTheLockOpen) {
  std::atomic<bool> stop = false;
  struct Shared {
    std::atomic<bool>* stop;
  } shared{&stop};
  pthread_t thread{};
  ASSERT_EQ(exgen_pthread_create(
                &thread, nullptr,
                [](void* given) -> void* {
                  std::mt19937 random(5);  // NOLINT: the same sequence every time
                  while (!*static_cast<Shared*>(given)->stop) {
                    give(take(random));
                  }
                  return nullptr;
                },
                &shared),
            0);
  for (int i = 0; i < 50; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      std::mt19937 random(6);  // NOLINT: the same sequence every time
      bool right = true;
      for (int n = 0; n < 100; ++n) {
        right = give(take(random)) && right;
      }
      _exit(right ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
  }
  stop = true;
  pthread_join(thread, nullptr);
}

}  // namespace
