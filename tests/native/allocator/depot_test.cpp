// Tests the depot: stacks of whole lists, in both orders, halved and counted.
#include "core/depot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

class DepotTest : public ::testing::Test {
 protected:
  using Classes = Depot<Usual>::Classes;

  // Links the next `count` blocks, which no other list has.
  BlockChain list(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      blocks[used + i].next = i + 1 < count ? &blocks[used + i + 1] : nullptr;
    }
    used += count;
    return {&blocks[used - count], count};
  }

  struct alignas(16) Sixteen : Block {
    std::uint64_t second_word;
  };
  std::array<Sixteen, 4000> blocks{};
  std::size_t used = 0;
  Pool pool;
  OwnedSuperblocks<Usual> owned{pool, 0};
  Depot<Usual> depot{pool, owned};
};

TEST_F(DepotTest, AnEmptyDepotHasNoList) {
  EXPECT_EQ(depot.pop(1).first, nullptr);
  EXPECT_EQ(depot.bytes(), 0U);
}

TEST_F(DepotTest, TheLatestListComesFirst) {
  const BlockChain one = list(3);
  const BlockChain two = list(1);
  const BlockChain other = list(2);
  depot.push(1, one);
  depot.push(2, other);
  depot.push(1, two);
  EXPECT_EQ(depot.bytes(), 4 * Classes::bytes(1) + 2 * Classes::bytes(2));
  EXPECT_EQ(depot.pop(1).first, two.first);
  const BlockChain again = depot.pop(1);
  EXPECT_EQ(again.first, one.first);
  EXPECT_EQ(again.count, 3U);
  EXPECT_EQ(depot.pop(1).first, nullptr);
  EXPECT_EQ(depot.bytes(), 2 * Classes::bytes(2));
}

TEST_F(DepotTest, HalvingKeepsTheLatestLists) {
  std::vector<Block*> lists;
  for (int i = 0; i < 8; ++i) {
    const BlockChain added = list(10);
    lists.push_back(added.first);
    depot.push(3, added);
  }
  std::vector<Block*> returned;
  depot.halve(3, [&](BlockChain chain) { returned.push_back(chain.first); });
  EXPECT_EQ(returned, (std::vector<Block*>{lists[3], lists[2], lists[1], lists[0]}));
  EXPECT_EQ(depot.bytes(), 40 * Classes::bytes(3));
  EXPECT_EQ(depot.pop(3).first, lists[7]);
}

TEST_F(DepotTest, ItTakesOverAnother) {
  const BlockChain one = list(5);
  depot.push(4, one);
  Depot<Usual> heir{pool, owned};
  heir.take_over(depot);
  EXPECT_EQ(depot.bytes(), 0U);
  EXPECT_EQ(depot.pop(4).first, nullptr);
  EXPECT_EQ(heir.shared_bytes(), 5 * Classes::bytes(4)) << "its thread may sleep from now on";
  EXPECT_EQ(heir.pop(4).first, one.first);
  EXPECT_EQ(heir.bytes(), 0U);
}

TEST_F(DepotTest, AnIdleDepotIsOneThatHasMovedNoListSinceTheLastLook) {
  const std::size_t number = Classes::kCount - 1;
  Depot<Usual> own{pool, owned};
  pool.join(own);
  pool.join(depot);
  EXPECT_EQ(pool.find_idle_depot(own, 1), nullptr);
  depot.push(number, {list(1).first, Depot<Usual>::kPrivateBytes / Classes::bytes(number)}, true);
  depot.push(number, list(1), true);
  EXPECT_EQ(pool.find_idle_depot(own, 1), nullptr) << "it has moved lists";
  EXPECT_EQ(pool.find_idle_depot(own, 1), &depot);
  EXPECT_EQ(pool.find_idle_depot(own, depot.shared_bytes() + 1), nullptr) << "too small";
  EXPECT_EQ(pool.find_idle_depot(depot, 1), nullptr) << "one's own";
  depot.pop(number);
  EXPECT_EQ(pool.find_idle_depot(own, 0), nullptr) << "it has moved a list";
  pool.forget_other_heaps();
  EXPECT_EQ(pool.find_idle_depot(own, 0), nullptr);
}

TEST_F(DepotTest, OthersTakeWhatItDoesNotKeepToItself) {
  const std::size_t number = Classes::kCount - 1;
  const BlockChain kept{list(1).first, Depot<Usual>::kPrivateBytes / Classes::bytes(number)};
  const BlockChain older = list(2);
  const BlockChain later = list(3);
  const BlockChain other = list(4);
  depot.push(number, kept, true);
  EXPECT_EQ(depot.shared_bytes(), 0U);
  depot.push(number, older, true);
  depot.push(number, later, true);
  depot.push(2, other, true);
  EXPECT_EQ(depot.shared_bytes(), 5 * Classes::bytes(number) + 4 * Classes::bytes(2));
  EXPECT_EQ(depot.bytes(), Depot<Usual>::kPrivateBytes + depot.shared_bytes());
  std::vector<Block*> taken;
  depot.take_all_shared([&](BlockChain chain) { taken.push_back(chain.first); });
  EXPECT_EQ(taken, (std::vector<Block*>{other.first, later.first, older.first}));
  EXPECT_EQ(depot.shared_bytes(), 0U);
  EXPECT_EQ(depot.pop(2).first, nullptr);
  EXPECT_EQ(depot.pop(number).first, kept.first);
  EXPECT_EQ(depot.bytes(), 0U);
}

// As in the child of a fork whose parent had a thread between taking a list and counting it.
TEST_F(DepotTest, CountedAgainItHasTheListsThatAreThere) {
  struct Inspected : Depot<Usual> {
    using Depot::add_pushed;
    using Depot::Depot;
  };
  Inspected counted{pool, owned};
  const std::size_t number = Classes::kCount - 1;
  counted.push(number, {list(1).first, Depot<Usual>::kPrivateBytes / Classes::bytes(number)}, true);
  counted.push(number, list(3), true);
  counted.push(2, list(4), true);
  counted.add_pushed(1'000'000);
  counted.count_again();
  EXPECT_EQ(counted.shared_bytes(), 3 * Classes::bytes(number) + 4 * Classes::bytes(2));
}

TEST_F(DepotTest, CountedAgainItKeepsNoMoreSpansThanTheThreadHasAllocated) {
  Depot<Usual> counted{pool, owned};
  Superblock span{};
  span.length = 1;
  counted.add_obtained(1);
  counted.push_span(&span);
  EXPECT_EQ(counted.take_all_own_spans(), &span);
  EXPECT_FALSE(counted.has_allocated(1));
  counted.count_again();
  EXPECT_FALSE(counted.has_allocated(1));
}

// Random pushes, pops and halvings against plain stacks.
TEST_F(DepotTest, ItBehavesLikeStacksOfLists) {
  std::mt19937 random(7);
  std::array<std::vector<BlockChain>, 5> stacks;
  std::size_t bytes = 0;
  for (int step = 0; step < 1000; ++step) {
    const std::size_t number = 1 + random() % 4;
    auto& stack = stacks[number];
    if (random() % 2 == 0 && used + 20 < blocks.size()) {
      stack.push_back(list(1 + random() % 19));
      depot.push(number, stack.back());
      bytes += stack.back().count * Classes::bytes(number);
    } else if (random() % 8 == 0) {
      std::size_t total = 0;
      for (const BlockChain& chain : stack) {
        total += chain.count;
      }
      std::size_t kept = 0;
      auto keep = stack.rbegin();
      for (; kept < total / 2; ++keep) {
        kept += keep->count;
      }
      depot.halve(number, [&](BlockChain chain) {
        EXPECT_EQ(chain.first, keep->first);
        ++keep;
      });
      EXPECT_EQ(keep, stack.rend());
      bytes -= (total - kept) * Classes::bytes(number);
      while (total > kept) {
        total -= stack.front().count;
        stack.erase(stack.begin());
      }
    } else {
      const BlockChain popped = depot.pop(number);
      EXPECT_EQ(popped.first, stack.empty() ? nullptr : stack.back().first);
      if (!stack.empty()) {
        bytes -= stack.back().count * Classes::bytes(number);
        stack.pop_back();
      }
    }
    ASSERT_EQ(depot.bytes(), bytes);
  }
}

}  // namespace
}  // namespace heapwright::alloc::test
