// Tests that threads free blocks to a heap's lists while its thread takes, counts and at last
// closes them: no block may be lost or be in two places. For ThreadSanitizer above all.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "../support.h"

namespace heapwright::alloc::test {
namespace {

using Lists = FreedByOthers<Usual>;
constexpr std::size_t kNumbers = 3;  // classes in use

struct alignas(16) Sixteen : Block {
  std::size_t number;   // of its class
  std::uint64_t freed;  // how many lists it is in
};

// The blocks that the program may use.
class Spare {
 public:
  void put(BlockChain list) {
    const std::lock_guard guard(mutex_);
    for (Block* block = list.first; block != nullptr;) {
      auto* const here = static_cast<Sixteen*>(block);
      block = block->next;
      EXPECT_EQ(here->freed, 1U);
      here->freed = 0;
      here->next = here;  // a walk that still comes here never ends
      blocks_.push_back(here);
    }
  }
  Sixteen* any() {
    const std::lock_guard guard(mutex_);
    if (blocks_.empty()) {
      return nullptr;
    }
    Sixteen* const block = blocks_.back();
    blocks_.pop_back();
    return block;
  }
  [[nodiscard]] std::size_t size() const { return blocks_.size(); }

 private:
  std::mutex mutex_;
  std::vector<Sixteen*> blocks_;
};

// Frees blocks as Heap::return_to_allocating_heap() does, until the lists are closed.
void free_blocks(Lists& lists, const Pool& pool, Spare& spare, std::size_t& refused) {
  while (lists.is_open(pool)) {
    Sixteen* const block = spare.any();
    if (block == nullptr) {
      std::this_thread::yield();
      continue;
    }
    block->freed = 1;
    if (!lists.add(pool, block->number, block)) {
      ++refused;
      block->next = nullptr;
      spare.put({block, 1});
    } else if (!lists.is_open(pool)) {
      lists.take_all([&](BlockChain list) { spare.put(list); });
    }
  }
}

TEST(FreedByOthersThreads, NoBlockIsLostWhileTheyAreTakenAndClosed) {
  constexpr std::size_t kThreads = 3;
  std::mt19937 random(7);  // NOLINT: the same sequence every time
  std::size_t taken = 0;
  std::array<std::size_t, kThreads> refused{};
  for (int round = 0; round < 40; ++round) {
    std::vector<Sixteen> memory(1000);
    Spare spare;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory[i] = {{nullptr}, Lists::Classes::kCount - 1 - i % kNumbers, 1};
      spare.put({&memory[i], 1});
    }
    Pool pool;
    pool.region.heaps = 2;
    Lists lists;
    lists.open(pool);
    std::vector<std::thread> threads;
    for (std::size_t& own : refused) {
      threads.emplace_back([&] { free_blocks(lists, pool, spare, own); });
    }
    const std::size_t before = taken;
    for (int step = 0; step < 500 || taken < before + 100; ++step) {
      if (step % 16 == 0) {
        lists.each([](std::size_t number, const Block* block) {
          for (; block != nullptr; block = block->next) {
            EXPECT_EQ(static_cast<const Sixteen*>(block)->number, number);
          }
        });
      }
      const BlockChain list = lists.take(Lists::Classes::kCount - 1 - random() % kNumbers);
      taken += list.count;
      spare.put(list);
      if (list.first == nullptr) {
        std::this_thread::yield();
      }
    }
    lists.close();
    lists.take_all([&](BlockChain list) { spare.put(list); });
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(spare.size(), memory.size()) << "a block is lost or twice there";
    EXPECT_EQ(lists.bytes(), 0U);
  }
}

}  // namespace
}  // namespace heapwright::alloc::test
