// Tests free bits: blocks in any order come back in the order of addresses, each exactly once.
#include "core/free_bits.h"

#include <algorithm>
#include <random>
#include <ranges>
#include <set>
#include <vector>

#include "core/return_blocks.h"
#include "support.h"

namespace heapwright::alloc::test {
namespace {

class FreeBitsTest : public testing::Test {
 protected:
  using Owned = OwnedSuperblocks<Usual>;
  using Classes = Owned::Classes;

  FreeBitsTest() {
    reports.clear();
    pool.on_fault = report;
    pool.region.settings.clock = test_clock;
    pool.region.settings.huge_pages = platform::HugePageMode::kNever;
  }
  ~FreeBitsTest() override { abandon(pool.region); }

  // All blocks of a new superblock, in the order of addresses.
  std::vector<Block*> superblock_of_blocks(std::size_t bytes) {
    const std::size_t number = Classes::of(bytes);
    std::vector<Block*> blocks;
    while (blocks.size() < kSuperblockBytes / Classes::bytes(number)) {
      for (Block* block = owned.refill(number, 64).first; block != nullptr; block = block->next) {
        blocks.push_back(block);
      }
    }
    std::ranges::sort(blocks);
    return blocks;
  }
  // The same, but the first block is free, in the list of the superblock, which is queued and not
  // current.
  std::vector<Block*> queued_superblock(std::size_t bytes) {
    auto blocks = superblock_of_blocks(bytes);
    superblock_of_blocks(bytes);
    owned.return_blocks(linked({blocks.front()}));
    blocks.erase(blocks.begin());
    return blocks;
  }
  static bool add(const Block* block) {
    Superblock* const superblock = superblock_of(block);
    return FreeBits::add(superblock, block, FreeBits::factor(superblock));
  }
  static std::vector<Block*> members(BlockChain chain) {
    std::vector<Block*> blocks;
    for (Block* block = chain.first; block != nullptr; block = block->next) {
      blocks.push_back(block);
    }
    EXPECT_EQ(blocks.size(), chain.count);
    return blocks;
  }

  Pool pool;
  Owned owned{pool, 0};
  std::mt19937 random{1};
};

TEST_F(FreeBitsTest, BlocksOfEachSizeComeBackInOrder) {
  for (std::size_t number = 1; FreeBits::fit(Classes::bytes(number)); ++number) {
    auto blocks = superblock_of_blocks(Classes::bytes(number));
    const auto in_order = blocks;
    Superblock* const superblock = superblock_of(blocks.front());
    FreeBits bits(superblock);
    std::ranges::shuffle(blocks, random);
    for (const Block* block : blocks) {
      EXPECT_TRUE(add(block));
    }
    EXPECT_EQ(superblock->free_bits, blocks.size());
    EXPECT_EQ(members(bits.take<Usual>(pool, blocks.size() + 1)), in_order) << Classes::bytes(number);
    EXPECT_EQ(superblock->free_bits, 0U);
  }
}

TEST_F(FreeBitsTest, ABlockIsAddedOnceAndOnlyWhereItBegins) {
  for (const std::size_t size : {16, 48, 64, 240}) {
    const auto blocks = superblock_of_blocks(size);
    Superblock* const superblock = superblock_of(blocks.front());
    FreeBits bits(superblock);
    EXPECT_TRUE(add(blocks[5]));
    EXPECT_FALSE(add(blocks[5])) << size;
    for (std::size_t inside = 8; inside < size; inside += 8) {
      EXPECT_FALSE(add(reinterpret_cast<Block*>(reinterpret_cast<char*>(blocks[7]) + inside))) << size;
    }
    EXPECT_EQ(members(bits.take<Usual>(pool, 10)), std::vector<Block*>{blocks[5]});
    EXPECT_EQ(bits.take<Usual>(pool, 10).first, nullptr);
  }
}

TEST_F(FreeBitsTest, ClearedBitsHoldNoBlock) {
  const auto blocks = superblock_of_blocks(16);
  Superblock* const superblock = superblock_of(blocks.front());
  FreeBits bits(superblock);
  EXPECT_TRUE(add(blocks.front()));
  EXPECT_TRUE(add(blocks.back()));
  bits.clear();
  EXPECT_EQ(bits.take<Usual>(pool, 10).first, nullptr);
  EXPECT_TRUE(add(blocks.back()));
}

// Against a set of addresses.
TEST_F(FreeBitsTest, AnySequenceOfAddingAndTakingAgreesWithASet) {
  for (const std::size_t size : {16, 32, 80, 224}) {
    const auto blocks = superblock_of_blocks(size);
    Superblock* const superblock = superblock_of(blocks.front());
    FreeBits bits(superblock);
    std::set<Block*> model;
    for (int step = 0; step < 5000; ++step) {
      if (random() % 4 != 0) {
        Block* const block = blocks[random() % blocks.size()];
        ASSERT_EQ(add(block), model.insert(block).second);
      } else {
        const auto taken = members(bits.take<Usual>(pool, random() % 40));
        ASSERT_TRUE(std::ranges::equal(taken, model | std::views::take(taken.size())));
        model.erase(model.begin(), std::next(model.begin(), static_cast<std::ptrdiff_t>(taken.size())));
      }
      ASSERT_EQ(superblock->free_bits, model.size());
    }
    bits.clear();
  }
}

TEST_F(FreeBitsTest, ScatteredBlocksLeaveTheirSuperblockInOrder) {
  auto blocks = queued_superblock(64);
  std::ranges::shuffle(blocks, random);
  blocks.resize(500);
  EXPECT_EQ(owned.return_blocks(linked(blocks), Owned::Returned::kScattered), nullptr);
  EXPECT_EQ(owned.purger().idle_bytes(), 501 * 64U);
  std::ranges::sort(blocks);
  EXPECT_EQ(owned.refill(Classes::of(64), 64).count, 1U) << "the list first";
  std::vector<Block*> again;
  while (again.size() < 500) {
    const auto part = members(owned.refill(Classes::of(64), 64));
    again.insert(again.end(), part.begin(), part.end());
  }
  EXPECT_EQ(again, blocks);
  EXPECT_TRUE(reports.empty());
}

TEST_F(FreeBitsTest, ASuperblockOfFreeBitsReturnsToTheRegionAndIsEmptyWhenItComesBack) {
  auto blocks = queued_superblock(64);
  std::ranges::shuffle(blocks, random);
  owned.return_blocks(linked(blocks), Owned::Returned::kScattered);
  EXPECT_EQ(pool.region.statistics().used_bytes, kSuperblockBytes);
  EXPECT_EQ(superblock_of_blocks(48).size(), kSuperblockBytes / 48) << "none is free already";
  EXPECT_EQ(superblock_of_blocks(48).size(), kSuperblockBytes / 48);
}

TEST_F(FreeBitsTest, AScatteredListWithACycleIsReportedAndEnds) {
  for (const bool threaded : {false, true}) {
    reports.clear();
    if (threaded) {
      Owned::become_threaded(pool);
    }
    const auto blocks = queued_superblock(64);
    const BlockChain list = linked({blocks[3], blocks[9], blocks[6]});
    blocks[6]->next = blocks[9];
    owned.return_blocks({list.first, 3}, Owned::Returned::kScattered);
    EXPECT_EQ(reports, std::vector<Reported>({{blocks[9], Fault::kDoubleFree}}));
    EXPECT_EQ(owned.refill(Classes::of(64), 64).count, 1U) << "the list first";
    EXPECT_EQ(owned.refill(Classes::of(64), 64).count, 3U);
  }
}

}  // namespace
}  // namespace heapwright::alloc::test
