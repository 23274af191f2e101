// Tests the recorder's table of chosen objects and the filter in front of it.
#include "recorder/chosen_objects.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "recorder/real.h"

namespace heapwright::recorder {
namespace {

std::unique_ptr<ChosenObjects> empty_table() {
  auto table = std::make_unique<ChosenObjects>();
  std::memset(static_cast<void*>(table.get()), 0, sizeof(*table));
  return table;
}

// The n-th address that has a bit of the filter.
const void* address(std::size_t bit, std::size_t n) {
  return reinterpret_cast<const void*>((n + 1) * kFilterBits * 16 + bit * 16);
}

TEST(ChosenObjects, AreFoundUntilTheyAreRemoved) {
  const auto table = empty_table();
  std::mt19937_64 random(1);
  std::map<const void*, std::uint64_t> model;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    const void* const block = address(random() % 40, random() % 200);  // at most 200 objects have one bit
    ChosenObject object;
    if (const auto known = model.find(block); known != model.end()) {
      ASSERT_TRUE(may_be_chosen(block));
      ASSERT_TRUE(table->remove(block, object));
      EXPECT_EQ(object.size, known->second);
      model.erase(known);
    } else {
      EXPECT_FALSE(table->remove(block, object));
      ASSERT_TRUE(table->insert(block, {.size = i}));
      model[block] = i;
    }
  }
  for (const auto& [block, size] : model) {
    ChosenObject object;
    EXPECT_TRUE(table->remove(block, object));
    EXPECT_EQ(object.size, size);
  }
  for (std::size_t bit = 0; bit < 40; ++bit) {
    EXPECT_FALSE(may_be_chosen(address(bit, 0)));
  }
}

TEST(ChosenObjects, ACounterThatIsFullKeepsItsBit) {
  const auto table = empty_table();
  constexpr std::size_t kBit = 50;
  ChosenObject object;
  for (std::size_t n = 0; n < 300; ++n) {
    ASSERT_TRUE(table->insert(address(kBit, n), {.size = n}));
  }
  for (std::size_t n = 0; n < 300; ++n) {
    EXPECT_TRUE(may_be_chosen(address(kBit, n)));
    EXPECT_TRUE(table->remove(address(kBit, n), object));
  }
  EXPECT_TRUE(may_be_chosen(address(kBit, 0)));
  EXPECT_FALSE(table->remove(address(kBit, 0), object));
}

// Threads add and remove objects that have the same bits: none of them may clear the bit of
// another.
TEST(ChosenObjects, HaveTheirBitWhileOtherThreadsClearIt) {
  const auto table = empty_table();
  std::atomic<std::uint64_t> missed = 0;
  std::atomic<std::uint64_t> lost = 0;
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < 3; ++number) {
    threads.emplace_back([&, number] {
      const void* const block = address(60, number);
      for (std::size_t i = 0; i < 1'000'000; ++i) {
        ChosenObject object;
        table->insert(block, {.size = number});
        for (int look = 0; look < 3; ++look) {
          missed += may_be_chosen(block) ? 0U : 1U;
        }
        lost += table->remove(block, object) && object.size == number ? 0U : 1U;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(missed, 0U);
  EXPECT_EQ(lost, 0U);
  EXPECT_FALSE(may_be_chosen(address(60, 0)));
}

// The bits of a word change at the same time: no change may undo another one.
TEST(ChosenObjects, KeepTheOtherBitsOfTheirWord) {
  const auto table = empty_table();
  std::atomic<std::uint64_t> missed = 0;
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < 4; ++number) {
    threads.emplace_back([&, number] {
      const void* const block = address(96 + number, 0);
      for (std::size_t i = 0; i < 300'000; ++i) {
        ChosenObject object;
        table->insert(block, {});
        missed += may_be_chosen(block) ? 0U : 1U;
        table->remove(block, object);
        missed += may_be_chosen(block) ? 1U : 0U;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(missed, 0U);
}

TEST(ChosenObjects, TheFilterKeepsThePool) {
  const auto table = empty_table();
  fill_filter_of_pool();
  const void* const block = address(filter_bit(pool) + kPoolBytes / 16, 3);  // the first after the pool
  const void* const shared = address(filter_bit(pool) + 5, 7);               // has a bit of the pool
  ASSERT_TRUE(table->insert(block, {}));
  ASSERT_TRUE(table->insert(shared, {}));
  clear_filter();
  EXPECT_FALSE(may_be_chosen(block));
  ChosenObject object;
  EXPECT_TRUE(table->remove(shared, object));
  for (std::size_t at = 0; at < kPoolBytes; at += 16) {
    ASSERT_TRUE(may_be_chosen(pool + at));
  }
}

}  // namespace
}  // namespace heapwright::recorder
