// Tests the parts of hardened builds that programs cannot see: how many blocks a refill takes, how a
// mark changes, and that memory which must read as zero is read to its end.
#include <algorithm>
#include <array>
#include <vector>

#include "core/return_blocks.h"
#include "core/take_blocks.h"
#include "support.h"

namespace heapwright::alloc::test {
namespace {

struct Hardened : Usual {
  static constexpr bool kSecure = true;
};

class HardenedSuperblocksTest : public testing::Test {
 protected:
  using Owned = OwnedSuperblocks<Hardened>;
  static constexpr std::size_t kClass = Owned::Classes::of(16);
  static constexpr std::size_t kBlocks = 1000;

  HardenedSuperblocksTest() {
    reports.clear();
    pool.on_fault = report;
    pool.region.settings.clock = test_clock;
    pool.region.settings.huge_pages = platform::HugePageMode::kNever;
  }
  ~HardenedSuperblocksTest() override { abandon(pool.region); }

  // The blocks of a chain, by its links.
  [[nodiscard]] std::vector<Block*> blocks_of(BlockChain chain) const {
    std::vector<Block*> blocks;
    for (Block* block = chain.first; block != nullptr; block = next_of<Hardened>(pool, block)) {
      blocks.push_back(block);
    }
    EXPECT_EQ(blocks.size(), chain.count);
    return blocks;
  }
  std::vector<Block*> take(std::size_t count) {
    std::vector<Block*> taken;
    while (taken.size() < count) {
      const std::vector<Block*> some = blocks_of(owned.refill(kClass, 4));
      taken.insert(taken.end(), some.begin(), some.end());
    }
    return taken;
  }
  void give_back(const std::vector<Block*>& blocks) {
    Block* head = nullptr;
    for (Block* const block : blocks) {
      set_next<Hardened>(pool, block, head);
      head = block;
    }
    EXPECT_EQ(owned.return_blocks({head, blocks.size()}), nullptr);
  }

  Pool pool;
  Owned owned{pool, owner_tag(1)};
};

// A whole free list may have thousands of blocks. It would return after a few dozen frees, and two
// walks through it would cost more than all checks.
TEST_F(HardenedSuperblocksTest, ARefillTakesNoMoreThanItsBatchOfALongFreeList) {
  std::vector<Block*> blocks = take(kBlocks + 1);
  blocks.pop_back();  // stays allocated, so the superblock does too
  give_back(blocks);
  std::vector<Block*> again;
  while (again.size() + 8 <= blocks.size()) {
    const std::vector<Block*> some = blocks_of(owned.refill(kClass, 8));
    ASSERT_EQ(some.size(), 8U);
    again.insert(again.end(), some.begin(), some.end());
  }
  std::sort(blocks.begin(), blocks.end());
  std::sort(again.begin(), again.end());
  EXPECT_TRUE(std::includes(blocks.begin(), blocks.end(), again.begin(), again.end()))
      << "free blocks come before memory that was never used";
  EXPECT_EQ(std::adjacent_find(again.begin(), again.end()), again.end()) << "none comes twice";
  EXPECT_TRUE(reports.empty());
}

TEST(HardenedMark, AChangeOfTheOriginKeepsTheRestAndHidesNoDamage) {
  Hardening hardening;
  hardening.start();
  constexpr std::size_t kSize = 64;
  for (std::size_t bytes = 1; bytes <= kSize - Hardening::kMarkBytes; ++bytes) {
    for (const Origin origin : {Origin::kMalloc, Origin::kNew, Origin::kNewArray}) {
      alignas(16) std::array<char, kSize> block{};
      hardening.write_mark(block.data(), kSize, bytes, Origin::kMalloc);
      Hardening::set_origin(block.data(), kSize, origin);
      const Hardening::Mark mark = hardening.read_mark(block.data(), kSize);
      EXPECT_TRUE(mark.intact);
      EXPECT_EQ(mark.bytes, bytes);
      EXPECT_EQ(mark.origin, origin);
      block[bytes] = 1;
      Hardening::set_origin(block.data(), kSize, origin);
      EXPECT_FALSE(hardening.read_mark(block.data(), kSize).intact);
    }
  }
}

TEST(HardenedWipe, AByteThatIsNotZeroIsFoundAtAnyOffset) {
  constexpr std::size_t kMax = 1200;
  alignas(16) std::array<unsigned char, kMax + 32> memory{};
  for (const std::size_t begin : {std::size_t{0}, std::size_t{8}, std::size_t{16}}) {
    for (std::size_t bytes = 8; bytes <= kMax; bytes += 8) {
      memory.fill(0);
      memory[begin + bytes] = 1;
      if (begin > 0) {
        memory[begin - 1] = 1;
      }
      ASSERT_TRUE(Hardening::is_wiped(memory.data() + begin, bytes)) << "of bytes outside";
      for (std::size_t offset = 0; offset < bytes; ++offset) {
        memory[begin + offset] = 0x80;
        ASSERT_FALSE(Hardening::is_wiped(memory.data() + begin, bytes)) << bytes << " " << offset;
        memory[begin + offset] = 0;
      }
    }
  }
}

}  // namespace
}  // namespace heapwright::alloc::test
