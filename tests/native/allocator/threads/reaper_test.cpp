// Tests reaper's heaps with many threads, for ThreadSanitizer above all: blocks go from thread to
// thread, threads start and end, some stay and sleep. The library is linked as in exgen_test.cpp.
#include "include/reaper.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

struct Block {
  unsigned char* address = nullptr;
  std::size_t bytes = 0;
  unsigned char fill = 0;
};

Block take(std::mt19937& random) {
  const unsigned kind = random() % 200;
  const std::size_t bytes = kind == 0   ? random() % 2'000'000
                            : kind < 20 ? 4 * 1024 + random() % (28 * 1024)
                                        : 1 + random() % 700;
  const auto fill = static_cast<unsigned char>(random());
  auto* const address = static_cast<unsigned char*>(reaper_malloc(bytes));
  if (address != nullptr) {
    std::memset(address, fill, bytes < 700 ? bytes : 700);
  }
  return {address, bytes, fill};
}
bool give(const Block& block) {
  bool same = block.address != nullptr && reaper_usable_size(block.address) >= block.bytes;
  for (std::size_t i = 0; same && i < block.bytes && i < 700; ++i) {
    same = block.address[i] == block.fill;
  }
  reaper_free(block.address);
  return same;
}

// Where blocks wait for whoever takes them.
class Market {
 public:
  void put(const Block& block) {
    const std::lock_guard guard(mutex_);
    blocks_.push_back(block);
  }
  Block any(std::mt19937& random) {
    const std::lock_guard guard(mutex_);
    if (blocks_.empty()) {
      return {};
    }
    std::swap(blocks_[random() % blocks_.size()], blocks_.back());
    const Block block = blocks_.back();
    blocks_.pop_back();
    return block;
  }

 private:
  std::mutex mutex_;
  std::vector<Block> blocks_;
};

bool trade(Market& market, unsigned seed, int operations) {
  std::mt19937 random(seed);
  bool right = true;
  std::vector<Block> own;
  for (int i = 0; i < operations; ++i) {
    switch (random() % 4) {
      case 0:
        own.push_back(take(random));
        break;
      case 1:
        market.put(take(random));
        break;
      case 2:
        if (!own.empty()) {
          right = give(own.back()) && right;
          own.pop_back();
        }
        break;
      default:
        if (const Block block = market.any(random); block.address != nullptr) {
          right = give(block) && right;
        }
    }
    if (random() % 2000 == 0) {
      reaper_trim();
    }
    if (random() % 2000 == 0) {
      reaper_statistics s{};
      reaper_get_statistics(&s);
    }
  }
  for (const Block& block : own) {
    market.put(block);
  }
  return right;
}

// Frees the remaining blocks. Nothing may be live after `reaper_trim` has drained the remote frees.
void expect_empty(Market& market) {
  std::mt19937 random(1);  // NOLINT: the same sequence every time
  for (Block block = market.any(random); block.address != nullptr; block = market.any(random)) {
    EXPECT_TRUE(give(block));
  }
  reaper_trim();
  reaper_statistics s{};
  reaper_get_statistics(&s);
  EXPECT_EQ(s.live, 0U);
  EXPECT_EQ(s.blocks, 0U);
}

TEST(ReaperThreads, BlocksGoFromHandToHandAndThreadsComeAndGo) {
  Market market;
  std::atomic<bool> right = true;
  for (unsigned round = 0; round < 12; ++round) {
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 2 + round % 4; ++i) {
      threads.emplace_back([&, i] { right = trade(market, round * 10 + i, 3000) && right; });
    }
    for (auto& thread : threads) {
      thread.join();
    }
  }
  EXPECT_TRUE(right) << "a block lost its contents";
  expect_empty(market);
}

TEST(ReaperThreads, WorkersThatStayAndMeetAtBarriers) {
  constexpr int kWorkers = 4;
  constexpr int kRegions = 30;
  constexpr std::size_t kBlocks = 4000;
  std::vector<Block> shared(kBlocks);
  std::atomic<bool> right = true;
  std::barrier meet(kWorkers);
  std::vector<std::thread> threads;
  for (unsigned me = 0; me < kWorkers; ++me) {
    threads.emplace_back([&, me] {
      std::mt19937 random(me);  // NOLINT: the same sequence every time
      for (int region = 0; region < kRegions; ++region) {
        if (me == 0) {  // alone, while the others sleep: half of what there is, whoever took it
          for (std::size_t i = 0; i < kBlocks; i += 2) {
            right = (shared[i].address == nullptr || give(shared[i])) && right;
            shared[i] = take(random);
          }
        }
        meet.arrive_and_wait();
        for (std::size_t i = me; i < kBlocks; i += kWorkers) {
          const std::size_t other = (i + static_cast<std::size_t>(region)) % kBlocks;
          if (other % kWorkers == (me + static_cast<unsigned>(region)) % kWorkers) {
            right = (shared[other].address == nullptr || give(shared[other])) && right;
            shared[other] = take(random);
          }
        }
        meet.arrive_and_wait();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(right) << "a block lost its contents";
  Market market;
  for (const Block& block : shared) {
    if (block.address != nullptr) {
      market.put(block);
    }
  }
  expect_empty(market);
}

// Each thread frees bursts that outgrow what its depot keeps to itself, and sleeps. Others that
// need memory, or trim, empty its depot meanwhile.
TEST(ReaperThreads, OthersEmptyTheDepotsOfThreadsThatSleep) {
  constexpr unsigned kThreads = 4;
  constexpr int kRounds = 12;
  constexpr std::size_t kBurst = 12'000;
  std::atomic<bool> right = true;
  std::vector<std::thread> threads;
  for (unsigned me = 0; me < kThreads; ++me) {
    threads.emplace_back([&, me] {
      std::mt19937 random(me);  // NOLINT: the same sequence every time
      std::vector<Block> burst(kBurst);
      for (int round = 0; round < kRounds; ++round) {
        const std::size_t bytes = 16 + (random() % 8) * 48;
        for (Block& block : burst) {
          const auto fill = static_cast<unsigned char>(random());
          block = {static_cast<unsigned char*>(reaper_malloc(bytes)), bytes, fill};
          std::memset(block.address, fill, bytes);
        }
        if (random() % 2 == 0) {
          std::shuffle(burst.begin(), burst.end(), random);
        }
        for (const Block& block : burst) {
          right = give(block) && right;
        }
        if (random() % 4 == 0) {
          reaper_trim();
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(random() % 4));
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_TRUE(right) << "a block lost its contents";
  Market none;
  expect_empty(none);
}

// The library's key is one of the first, so its destructor runs before this one. The thread must
// keep its heap for it: in the shared heap, which takes a lock, the blocks would wait in a batch.
TEST(ReaperThreads, DestructorsOfKeysFreeIntoTheHeapOfTheirThread) {
  pthread_key_t key = 0;
  const auto free_all = [](void* first) {
    for (void* block = first; block != nullptr;) {
      void* const next = *static_cast<void**>(block);
      reaper_free(block);
      block = next;
    }
  };
  ASSERT_EQ(pthread_key_create(&key, free_all), 0);
  reaper_statistics before{};
  reaper_get_statistics(&before);
  std::thread([key] {
    void* first = nullptr;
    for (int i = 0; i < 50; ++i) {
      auto* const block = static_cast<void**>(reaper_malloc(64));
      *block = first;
      first = block;
    }
    pthread_setspecific(key, first);
  }).join();
  reaper_statistics after{};
  reaper_get_statistics(&after);
  EXPECT_EQ(after.live, before.live);
  pthread_key_delete(key);
}

// Allocates blocks and frees them in order, in one thread. Returns the one freed last.
void* use_blocks(int count, std::size_t bytes) {
  std::vector<void*> blocks(static_cast<std::size_t>(count));
  for (void*& block : blocks) {
    block = reaper_malloc(bytes);
  }
  for (void* const block : blocks) {
    reaper_free(block);
  }
  return blocks.back();
}
std::size_t superblocks_in_use() {
  reaper_statistics s{};
  reaper_get_statistics(&s);
  return s.superblocks;
}

// Calls f(number) in several threads, which all end afterwards.
template <std::size_t kThreads, class F>
void in_all_threads(F f) {
  std::barrier meet(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t me = 0; me < kThreads; ++me) {
    threads.emplace_back([&, me] {
      f(me);
      meet.arrive_and_wait();
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

TEST(ReaperThreads, AThreadThatDidLittleLeavesItsListsToTheNext) {
  const std::size_t before = superblocks_in_use();
  void* last = nullptr;
  void* next = nullptr;
  std::thread([&] { last = use_blocks(3, 80); }).join();
  std::thread([&] {
    next = reaper_malloc(80);
    reaper_free(next);
  }).join();
  EXPECT_EQ(next, last);
  EXPECT_EQ(superblocks_in_use(), before) << "statistics count left blocks as live";
  std::thread([&] { last = use_blocks(3, 80); }).join();
  reaper_trim();
  std::thread([&] { next = reaper_malloc(80); }).join();
  EXPECT_NE(next, last) << "trim did not flush left lists";
  reaper_free(next);
}

TEST(ReaperThreads, AThreadThatDidMuchLeavesNoLists) {
  void* last = nullptr;
  void* next = nullptr;
  std::thread([&] { last = use_blocks(50'000, 80); }).join();
  std::thread([&] {
    next = reaper_malloc(80);
    reaper_free(next);
  }).join();
  EXPECT_NE(next, last);
}

TEST(ReaperThreads, LeftListsHoldABoundedAmountOfMemory) {
  constexpr std::size_t kThreads = 300;
  constexpr std::size_t kMaxLists = 2 * 1024 * 1024 / (16 * 1024);
  std::array<void*, kThreads> last{};
  std::array<void*, kThreads> next{};
  const auto count_left = [&](int blocks, std::size_t bytes) {
    reaper_trim();
    in_all_threads<kThreads>([&](std::size_t me) { last[me] = use_blocks(blocks, bytes); });
    in_all_threads<kThreads>([&](std::size_t me) { next[me] = reaper_malloc(bytes); });
    const auto is_left = [&](void* block) { return std::ranges::count(last, block) != 0; };
    const std::ptrdiff_t left = std::ranges::count_if(next, is_left);
    for (void* const block : next) {
      reaper_free(block);
    }
    return static_cast<std::size_t>(left);
  };
  const std::size_t short_lists = count_left(2, 48);  // one of their blocks keeps 64 KiB in use
  EXPECT_GT(short_lists, 0U);
  EXPECT_LE(short_lists, kMaxLists);
  const std::size_t long_lists = count_left(50, 4096);
  EXPECT_GT(long_lists, 0U);
  EXPECT_LE(long_lists, kMaxLists / 4);
}

TEST(ReaperThreads, ListsWithBlocksOfManySuperblocksDoNotStay) {
  constexpr std::size_t kThreads = 60;
  constexpr std::size_t kSuperblocks = 4;  // of each thread
  std::array<std::vector<void*>, kThreads> results;
  std::array<void*, kThreads> last{};
  std::array<void*, kThreads> next{};
  // Each thread frees `freed` blocks of each superblock, and another thread the rest.
  const auto count_left = [&](std::size_t bytes, std::size_t freed) {
    const std::size_t in_superblock = 64 * 1024 / bytes;
    reaper_trim();
    in_all_threads<kThreads>([&](std::size_t me) {
      std::vector<void*> blocks(kSuperblocks * in_superblock);
      std::ranges::generate(blocks, [=] { return reaper_malloc(bytes); });
      results[me].clear();
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i % in_superblock - in_superblock / 2 >= freed) {
          results[me].push_back(blocks[i]);
        } else {
          reaper_free(last[me] = blocks[i]);
        }
      }
    });
    for (const auto& result : results) {
      std::ranges::for_each(result, reaper_free);
    }
    in_all_threads<kThreads>([&](std::size_t me) { next[me] = reaper_malloc(bytes); });
    const std::ptrdiff_t left =
        std::ranges::count_if(next, [&](void* block) { return std::ranges::count(last, block) != 0; });
    std::ranges::for_each(next, reaper_free);
    return left;
  };
  constexpr std::ptrdiff_t kMaxLeft = 2 * 1024 * 1024 / ((kSuperblocks - 1) * 64 * 1024);
  EXPECT_LE(count_left(2048, 1), kMaxLeft);
  EXPECT_LE(count_left(128, 16), kMaxLeft) << "the first sixteen blocks lie in one superblock";
}

TEST(ReaperThreads, TheLastBlocksComeFromSeveralThreadsAtOnce) {
  constexpr int kThreads = 3;
  constexpr std::size_t kEach = 3 * 64 * 1024 / 256;
  for (int round = 0; round < 60; ++round) {
    std::vector<void*> blocks(kEach);
    std::barrier meet(kThreads);
    std::vector<std::thread> threads;
    for (std::size_t me = 0; me < kThreads; ++me) {
      threads.emplace_back([&, me] {
        if (me == 0) {
          for (void*& block : blocks) {
            block = reaper_malloc(256);
          }
        }
        meet.arrive_and_wait();
        for (std::size_t i = me; i < kEach; i += kThreads) {
          reaper_free(blocks[i]);
        }
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
  }
  Market market;
  expect_empty(market);
  reaper_statistics s{};
  reaper_get_statistics(&s);
  EXPECT_EQ(s.superblocks, 0U) << "a superblock is held though all its blocks are free";
}

TEST(ReaperThreads, AChildOfForkCanGoOnWhatsoeverTheOthersWereDoing) {
  std::atomic<bool> stop = false;
  Market market;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (unsigned n = 0; !stop; ++n) {
        trade(market, n * 10 + i, 200);
      }
    });
  }
  std::vector<Block> inherited;
  std::mt19937 random(5);  // NOLINT: the same sequence every time
  for (int i = 0; i < 40; ++i) {
    for (int n = 0; n < 500; ++n) {
      inherited.push_back(take(random));
    }
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      bool right = true;
      for (const Block& block : inherited) {
        right = give(block) && right;
      }
      for (int n = 0; n < 500; ++n) {
        right = give(take(random)) && right;
      }
      _exit(right ? 0 : 1);
    }
    int status = 1;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    for (const Block& block : inherited) {
      EXPECT_TRUE(give(block));
    }
    inherited.clear();
  }
  stop = true;
  for (auto& thread : threads) {
    thread.join();
  }
  expect_empty(market);
}

}  // namespace
