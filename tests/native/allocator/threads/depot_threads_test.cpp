// Tests a depot that its heap's thread uses while other threads empty it, for ThreadSanitizer above
// all: a wrong order of memory accesses is a data race on the blocks' words.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "../support.h"

namespace heapwright::alloc::test {
namespace {

constexpr std::size_t kClasses = 4;
constexpr std::size_t kListBytes = 2 * Depot<Usual>::kPrivateBytes / 3;  // the second list is shared already

struct alignas(16) Sixteen : Block {
  std::uint64_t second_word;
  std::uint64_t owner;  // how many lists and threads hold it
  std::uint64_t unused;
};

// The blocks that other threads have taken, until the depot's thread uses them again.
class Returned {
 public:
  void put(const std::vector<Sixteen*>& blocks) {
    const std::lock_guard guard(mutex_);
    blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  }
  std::vector<Sixteen*> take_all() {
    const std::lock_guard guard(mutex_);
    return std::exchange(blocks_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Sixteen*> blocks_;
};

// Takes the blocks of a list apart, as a thread that returns them does: reads and overwrites all
// words.
void take_apart(BlockChain list, std::vector<Sixteen*>& blocks, std::uint64_t fill) {
  for (Block* block = list.first; block != nullptr;) {
    auto* const here = static_cast<Sixteen*>(block);
    block = block->next;
    EXPECT_EQ(here->owner, 1U);
    here->owner = 0;
    here->second_word = fill;
    here->next = reinterpret_cast<Block*>(fill);
    blocks.push_back(here);
  }
}

// The thread of the heap: pushes, pops, halves and reads the depot.
void use(Depot<Usual>& depot, std::vector<Sixteen*> blocks, Returned& returned, int steps,
         std::size_t& left) {
  std::mt19937 random(3);  // NOLINT: the same sequence every time
  for (int step = 0; step < steps; ++step) {
    const std::size_t number = Depot<Usual>::Classes::kCount - 1 - random() % kClasses;
    if (blocks.size() < 8) {
      const std::vector<Sixteen*> back = returned.take_all();
      blocks.insert(blocks.end(), back.begin(), back.end());
    }
    const unsigned choice = random() % 64;
    if (choice == 0) {
      depot.halve(number, [&](BlockChain list) { take_apart(list, blocks, 1); });
    } else if (choice == 1) {
      depot.each([](std::size_t, const Block* block) {
        for (; block != nullptr; block = block->next) {
          EXPECT_EQ(static_cast<const Sixteen*>(block)->owner, 1U);
        }
      });
    } else if (choice % 2 == 0 && !blocks.empty()) {
      Block* first = nullptr;
      for (std::size_t count = 1 + random() % 7; count > 0 && !blocks.empty(); --count) {
        EXPECT_EQ(blocks.back()->owner, 0U);
        blocks.back()->owner = 1;
        blocks.back()->next = first;
        first = blocks.back();
        blocks.pop_back();
      }
      depot.push(number, {first, kListBytes / Depot<Usual>::Classes::bytes(number)}, true);
    } else {
      take_apart(depot.pop(number), blocks, 2);
    }
  }
  left = blocks.size();
}

TEST(DepotThreads, OthersEmptyItWhileItsThreadUsesIt) {
  constexpr std::size_t kBlocks = 2000;
  constexpr int kSteps = 100'000;
  std::vector<Sixteen> memory(kBlocks);
  std::vector<Sixteen*> blocks;
  for (Sixteen& one : memory) {
    blocks.push_back(&one);
  }
  Pool pool;
  OwnedSuperblocks<Usual> owned(pool, 0);
  Depot<Usual> depot(pool, owned);
  Returned returned;
  std::atomic<bool> stop = false;
  std::atomic<std::size_t> taken = 0;
  std::vector<std::thread> others;
  for (std::uint64_t me = 0; me < 3; ++me) {
    others.emplace_back([&, me] {
      while (!stop) {
        std::vector<Sixteen*> found;
        depot.take_all_shared([&](BlockChain list) { take_apart(list, found, 3 + me); });
        taken += found.size();
        returned.put(found);
        std::this_thread::yield();
      }
    });
  }
  std::size_t left = 0;
  std::thread(use, std::ref(depot), blocks, std::ref(returned), kSteps, std::ref(left)).join();
  stop = true;
  for (std::thread& other : others) {
    other.join();
  }
  std::vector<Sixteen*> rest = returned.take_all();
  depot.take_all_shared([&](BlockChain list) { take_apart(list, rest, 9); });
  EXPECT_EQ(depot.shared_bytes(), 0U);
  for (std::size_t number = 1; number < Depot<Usual>::Classes::kCount; ++number) {
    for (BlockChain list = depot.pop(number); list.first != nullptr; list = depot.pop(number)) {
      take_apart(list, rest, 9);
    }
  }
  EXPECT_EQ(left + rest.size(), kBlocks) << "a block is lost or twice there";
  EXPECT_EQ(depot.bytes(), 0U);
  EXPECT_GT(taken, 0U) << "the test did not test";
}

// A clock by which each end of a bias is paid for at once.
std::uint64_t quick_clock() {
  static std::atomic<std::uint64_t> now_ms = 1000;
  return now_ms += 1000;
}

// The same for spans: each is marked as it goes into the depot and as it comes out.
TEST(DepotThreads, OthersTakeTheSpansWhileItsThreadUsesThem) {
  constexpr std::size_t kSpansOfALength = 100;
  constexpr std::size_t kLengths = 3;
  constexpr int kSteps = 300'000;
  std::vector<Superblock> memory(kLengths * kSpansOfALength);
  std::mutex mutex;
  std::array<std::vector<Superblock*>, kLengths + 1> outside;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i].length = static_cast<std::uint32_t>(1 + i % kLengths);
    outside[memory[i].length].push_back(&memory[i]);
  }
  Pool pool;
  pool.threaded = true;
  pool.region.settings.clock = quick_clock;
  OwnedSuperblocks<Usual> owned(pool, 0);
  OwnedSuperblocks<Usual> no_superblocks(pool, 1);
  Depot<Usual> depot(pool, owned);
  const Depot<Usual> of_others(pool, no_superblocks);
  depot.add_obtained(kLengths * kSpansOfALength * kLengths);
  const auto take_out = [&](Superblock* span) {
    EXPECT_EQ(std::exchange(span->carved, 0), 1U) << "twice there";
    span->next = nullptr;
    const std::lock_guard guard(mutex);
    outside[span->length].push_back(span);
  };
  const auto take_out_all = [&](Superblock* spans) {
    std::size_t count = 0;
    for (; spans != nullptr; ++count) {
      take_out(std::exchange(spans, spans->next));
    }
    return count;
  };
  std::atomic<bool> stop = false;
  std::atomic<std::size_t> taken = 0;
  std::atomic<std::size_t> biased = 0;  // how many biases other threads have ended
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      while (!stop) {
        {
          const std::lock_guard guard(pool.lock);
          biased += depot.is_biased() ? 1 : 0;
          pool.end_bias(of_others, nullptr);
          taken += Pool::may_take_spans(depot) ? take_out_all(depot.take_all_spans()) : 0;
        }
        std::this_thread::yield();
      }
    });
  }
  std::thread([&] {
    std::mt19937 random(3);  // NOLINT: the same sequence every time
    // On a busy machine the other threads may get no processor meanwhile.
    const auto goes_on = [&](int step) {
      const bool tested = taken > 0 && (biased > 0 || !platform::may_order_all_threads());
      return step < kSteps || (!tested && step < 100 * kSteps);
    };
    for (int step = 0; goes_on(step); ++step) {
      const std::size_t length = 1 + random() % kLengths;
      const unsigned choice = random() % 64;
      if (choice == 0) {
        take_out_all(depot.take_all_own_spans());
      } else if (choice == 1) {
        const std::lock_guard guard(pool.lock);
        pool.join(depot);
        pool.bias(depot);
      } else if (choice % 2 == 0) {
        Superblock* span = nullptr;
        {
          const std::lock_guard guard(mutex);
          if (!outside[length].empty()) {
            span = outside[length].back();
            outside[length].pop_back();
          }
        }
        if (span != nullptr) {
          span->carved = 1;
          if (!depot.push_quickly(span)) {
            depot.push_span(span);
          }
        }
      } else {
        Superblock* span = depot.pop_quickly(length);
        span = span != nullptr ? span : depot.pop_span(length);
        if (span != nullptr) {
          EXPECT_EQ(span->length, length);
          take_out(span);
        }
      }
      depot.set_bounds(0, memory.size() * kLengths);
    }
  }).join();
  stop = true;
  for (std::thread& other : others) {
    other.join();
  }
  take_out_all(depot.take_all_own_spans());
  for (std::size_t length = 1; length <= kLengths; ++length) {
    EXPECT_EQ(outside[length].size(), kSpansOfALength) << "a span is lost or twice there";
  }
  EXPECT_EQ(depot.span_superblocks(), 0U);
  EXPECT_EQ(pool.region.lent.superblocks, 0);
  EXPECT_GT(taken, 0U) << "the test did not test";
  if (platform::may_order_all_threads()) {
    EXPECT_GT(biased, 0U) << "the test did not test";
  }
}

// The heap's thread stores to memory that no cache holds, so its later stores wait. Without a barrier in
// all threads it would read that its stacks are biased before another thread sees that it changes them.
TEST(DepotThreads, NoSpanIsTakenWhileItsThreadChangesTheStacks) {
  constexpr int kSteps = 100'000;
  constexpr std::size_t kLines = 1 << 20U;
  struct alignas(64) Line {
    std::uint64_t word;
  };
  std::vector<Line> lines(kLines);
  Superblock span{};
  span.length = 1;
  std::atomic<int> holders = 0;              // threads that have the span
  std::atomic<Superblock*> mailbox = &span;  // from other threads to the heap's
  Pool pool;
  pool.threaded = true;
  pool.region.settings.clock = quick_clock;
  OwnedSuperblocks<Usual> owned(pool, 0);
  OwnedSuperblocks<Usual> no_superblocks(pool, 1);
  Depot<Usual> depot(pool, owned);
  const Depot<Usual> of_others(pool, no_superblocks);
  depot.add_obtained(2);
  pool.join(depot);
  std::atomic<bool> stop = false;
  std::atomic<std::size_t> taken = 0;
  std::thread other([&] {
    while (!stop) {
      Superblock* found = nullptr;
      {
        const std::lock_guard guard(pool.lock);
        pool.end_bias(of_others, nullptr);
        found = Pool::may_take_spans(depot) ? depot.take_all_spans() : nullptr;
      }
      if (found != nullptr) {
        EXPECT_EQ(holders.fetch_add(1), 0) << "its thread has the span, too";
        ++taken;
        holders.fetch_sub(1);
        mailbox = found;
      }
    }
  });
  std::mt19937 random(3);  // NOLINT: the same sequence every time
  for (int step = 0; step < kSteps; ++step) {
    if (!depot.is_biased()) {
      const std::lock_guard guard(pool.lock);
      pool.bias(depot);
    }
    depot.set_bounds(0, 2);
    if (Superblock* const back = mailbox.exchange(nullptr); back != nullptr) {
      depot.push_span(back);
    }
    for (int i = 0; i < 8; ++i) {
      lines[random() % kLines].word = 1;
    }
    if (Superblock* const mine = depot.pop_quickly(1); mine != nullptr) {
      EXPECT_EQ(holders.fetch_add(1), 0) << "another thread has the span, too";
      holders.fetch_sub(1);
      EXPECT_EQ(mailbox.load(), nullptr) << "another thread had it";
      depot.push_span(mine);
    }
  }
  stop = true;
  other.join();
  if (platform::may_order_all_threads()) {
    EXPECT_GT(taken, 0U) << "the test did not test";
  }
}

}  // namespace
}  // namespace heapwright::alloc::test
