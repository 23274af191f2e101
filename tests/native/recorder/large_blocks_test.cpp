// Tests the recorder's table of large blocks.
#include "recorder/large_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>

namespace heapwright::recorder {
namespace {

TEST(LargeBlocks, AreFoundUntilTheyAreRemoved) {
  const auto table = std::make_unique<LargeBlocks>();
  std::memset(static_cast<void*>(table.get()), 0, sizeof(*table));
  std::mt19937_64 random(1);
  std::map<const void*, std::size_t> model;
  for (int i = 0; i < 100'000; ++i) {
    const auto* const block = reinterpret_cast<const void*>(0x7f0000000010 + random() % 500 * 0x11000);
    const auto known = model.find(block);
    if (known == model.end()) {
      EXPECT_EQ(table->find(block).size, 0U);
      EXPECT_EQ(table->remove(block).size, 0U);
      table->insert(block, {kLarge + static_cast<std::size_t>(i), static_cast<Touching>(i % 3)});
      model[block] = kLarge + static_cast<std::size_t>(i);
      EXPECT_TRUE(may_be_large(block));
    } else {
      EXPECT_EQ(table->find(block).size, known->second);
      const LargeBlock large = table->remove(block);
      EXPECT_EQ(large.size, known->second);
      EXPECT_EQ(large.touching, static_cast<Touching>((known->second - kLarge) % 3));
      model.erase(known);
    }
  }
  std::size_t count = 0;
  table->each([&](std::uintptr_t, LargeBlock) { ++count; });
  EXPECT_EQ(count, model.size());
}

// Otherwise each free of such a block searches the table in vain.
TEST(LargeBlocks, FewSmallBlocksMayBeLargeWithThousandsOfLargeBlocks) {
  const auto table = std::make_unique<LargeBlocks>();
  std::memset(static_cast<void*>(table.get()), 0, sizeof(*table));
  std::mt19937_64 random(2);
  std::map<const void*, std::size_t> blocks;
  while (blocks.size() < 2000) {
    blocks[reinterpret_cast<const void*>(0x7f0000000010 + random() % (1 << 24) * 0x1000)] = kLarge;
  }
  for (const auto& [block, size] : blocks) {
    table->insert(block, {size});
  }
  int wrong = 0;
  for (int i = 0; i < 10'000; ++i) {
    wrong +=
        may_be_large(reinterpret_cast<const void*>(0x550000000010 + random() % (1 << 20) * 0x1000)) ? 1 : 0;
  }
  EXPECT_LT(wrong, 2000);
  for (const auto& [block, size] : blocks) {
    EXPECT_EQ(table->remove(block).size, size);
  }
}

TEST(LargeBlocks, ASearchInVainIsShortAfterManyBlocks) {
  const auto table = std::make_unique<LargeBlocks>();
  std::memset(static_cast<void*>(table.get()), 0, sizeof(*table));
  std::mt19937_64 random(3);
  std::map<const void*, std::size_t> live;
  for (std::size_t i = 0; i < 300'000; ++i) {
    const auto* const block = reinterpret_cast<const void*>(0x7f0000000010 + random() % (1 << 20) * 0x11000);
    if (live.size() == 2000) {
      EXPECT_EQ(table->remove(live.begin()->first).size, live.begin()->second);
      live.erase(live.begin());
    }
    if (live.emplace(block, kLarge + i).second) {
      table->insert(block, {kLarge + i});
    }
  }
  EXPECT_LT(table->probes(), 32U);
}

}  // namespace
}  // namespace heapwright::recorder
