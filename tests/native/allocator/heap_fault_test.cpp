// Tests which wrong pointers a heap notices, where, and when. The fast path notices those that cost
// it nothing, and a check of a list those in one list of sixteen. The tests also state which ones
// the heap does not notice, because a check would cost time.
#include <cstring>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

template <Configuration C>
class HeapFault : public HeapTest<C> {
 protected:
  // Takes other blocks and gives them back.
  void churn(std::size_t bytes, int count = 2000) {
    std::vector<void*> others;
    for (int i = 0; i < count; ++i) {
      others.push_back(this->take(bytes));
    }
    for (void* const block : others) {
      this->give(block);
    }
  }
};
TYPED_TEST_SUITE(HeapFault, Configurations);

TYPED_TEST(HeapFault, NullIsNothing) {
  this->give(nullptr);
  this->take(16);
  this->give(nullptr);
  EXPECT_TRUE(reports.empty());
}

TYPED_TEST(HeapFault, AForeignPointerAtOnce) {
  this->take(16);
  alignas(16) char here[32];
  static char data[32];
  for (void* const wrong :
       {static_cast<void*>(here), static_cast<void*>(data), reinterpret_cast<void*>(16),
        reinterpret_cast<void*>(UINTPTR_MAX - 15), reinterpret_cast<void*>(this->heap.region().base() - 64),
        reinterpret_cast<void*>(this->heap.region().base() + this->heap.region().bytes())}) {
    reports.clear();
    this->give(wrong);
    EXPECT_EQ(reports, std::vector<Reported>({{wrong, Fault::kForeign}}));
  }
}

TYPED_TEST(HeapFault, ALargeBlockTwiceOrInsideAtOnce) {
  auto* const block = static_cast<char*>(this->take(2'000'000));
  this->give(block + 4096);
  EXPECT_EQ(reports, std::vector<Reported>({{block + 4096, Fault::kInterior}}));
  this->give(block);
  this->give(block);
  EXPECT_EQ(reports.back(), (Reported{block, Fault::kDoubleFree}));
}

TYPED_TEST(HeapFault, ASpanTwiceOrInsideAtOnce) {
  auto* const block = static_cast<char*>(this->take(300'000));
  for (const std::size_t inside : {std::size_t{16}, kSuperblockBytes, kSuperblockBytes + 4096}) {
    reports.clear();
    this->give(block + inside);
    EXPECT_EQ(reports, std::vector<Reported>({{block + inside, Fault::kInterior}}));
  }
  EXPECT_EQ(this->heap.usable(block), round_up(300'000, platform::page_size())) << "it is still allocated";
  reports.clear();
  this->give(block);
  EXPECT_TRUE(reports.empty());
  this->give(block);
  EXPECT_EQ(reports, std::vector<Reported>({{block, Fault::kDoubleFree}}));
}

TYPED_TEST(HeapFault, MemoryOfNoBlockAtOnce) {
  auto* const block = static_cast<char*>(this->take(16));
  this->give(memory_of(superblock_of(block) + 5));
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_NE(reports[0].fault, Fault::kForeign);
}

// A block freed twice makes a cycle, which stays in the list of the class until a check finds it.
TYPED_TEST(HeapFault, ASmallBlockTwiceInARowWhileTheProgramGoesOn) {
  void* const block = this->take(64);
  this->give(block);
  this->give(block);
  for (int round = 0; round < 40 && reports.empty(); ++round) {
    this->churn(64, 200);
  }
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].fault, Fault::kDoubleFree);
}

TYPED_TEST(HeapFault, ASmallBlockTwiceWithOthersBetweenWhileTheProgramGoesOn) {
  void* const block = this->take(64);
  void* const other = this->take(64);
  this->give(block);
  this->give(other);
  this->give(block);
  for (int round = 0; round < 40 && reports.empty(); ++round) {
    this->churn(64, 200);
  }
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].fault, Fault::kDoubleFree);
}

// The cycle leads through several superblocks: it is found before any block returns to one.
TYPED_TEST(HeapFault, ASmallBlockTwiceAmongBlocksOfSeveralSuperblocks) {
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(this->take(20'000));
  }
  for (const std::size_t i : {0U, 10U, 20U, 0U, 30U}) {
    this->give(blocks[i]);
  }
  this->heap.trim();
  if (TypeParam::kCacheBlocksPerClass < 8) {
    return;  // the list was returned between
  }
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].fault, Fault::kDoubleFree);
}

TYPED_TEST(HeapFault, ASmallBlockTwiceAtTheNextTrim) {
  void* const block = this->take(64);
  void* const other = this->take(64);
  this->give(block);
  this->give(other);
  this->give(block);
  this->heap.trim();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_TRUE(reports[0] == (Reported{block, Fault::kDoubleFree}) ||
              reports[0] == (Reported{other, Fault::kDoubleFree}));
}

// The block returns to its superblock before it is freed again. A heap could notice only that the
// superblock has more free blocks than carved ones. Here another block stays allocated, so the
// numbers agree.
TYPED_TEST(HeapFault, ASmallBlockTwiceIsNotNoticedAfterItReturnedToItsSuperblock) {
  std::vector<void*> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(this->take(1000));
  }
  this->give(blocks[0]);
  this->heap.trim();
  this->give(blocks[0]);
  this->heap.trim();
  for (std::size_t i = 2; i < blocks.size(); ++i) {
    this->give(blocks[i]);
  }
  // One block is still allocated, and one counts twice.
  EXPECT_TRUE(reports.empty());
}

TYPED_TEST(HeapFault, EveryPlaceInsideASmallBlockWhenItReturnsToItsSuperblock) {
  using Classes = typename Heap<TypeParam>::Classes;
  for (std::size_t number = 2; number < Classes::kCount; ++number) {
    const std::size_t size = Classes::bytes(number);
    auto* const block = static_cast<char*>(this->take(size));
    for (std::size_t inside = 8; inside + 8 <= size; inside += size / 16 / 8 * 8 + 8) {
      reports.clear();
      this->give(block + inside);
      this->heap.trim();
      ASSERT_EQ(reports, std::vector<Reported>({{block + inside, Fault::kInterior}}))
          << inside << " of " << size;
    }
    EXPECT_EQ(this->heap.usable(block), size);
    this->give(block);
  }
}

TYPED_TEST(HeapFault, APlaceInsideWhenItsListsAreChecked) {
  auto* const block = static_cast<char*>(this->take(96));
  std::vector<void*> others;
  for (int i = 0; i < 3000; ++i) {
    others.push_back(this->take(96));
  }
  this->give(block + 32);
  for (void* const other : others) {
    this->give(other);
  }
  this->heap.trim();
  EXPECT_EQ(reports, std::vector<Reported>({{block + 32, Fault::kInterior}}));
}

// After a heap has reported a wrong pointer, it works as before.
TYPED_TEST(HeapFault, AfterAReportTheHeapGoesOn) {
  alignas(16) char here[32];
  auto* const span = static_cast<char*>(this->take(300'000));
  auto* const small = static_cast<char*>(this->take(500));
  for (int i = 0; i < 100; ++i) {
    this->give(here);
    this->give(span + 100'000);
    this->give(small + 16);
    this->heap.trim();
    this->churn(500);
  }
  EXPECT_EQ(reports.size(), 300U);
  reports.clear();
  this->give(span);
  this->give(small);
  this->heap.trim();
  EXPECT_TRUE(reports.empty());
  EXPECT_EQ(this->heap.statistics().live_bytes, 0U);
}

// realloc of an address that is no block changes nothing; free reports it.
TYPED_TEST(HeapFault, ResizingWhatIsNoBlockIsRefused) {
  auto* const span = static_cast<char*>(this->take(300'000));
  auto* const next = static_cast<char*>(this->take(300'000));
  const std::size_t live = this->heap.statistics().live_bytes;
  for (const std::size_t bytes : {100'000, 300'000, 400'000}) {
    EXPECT_EQ(this->heap.resize(span + 16, bytes), nullptr);
    EXPECT_EQ(this->heap.resize(span + kSuperblockBytes, bytes), nullptr);
    EXPECT_EQ(this->heap.resize(reinterpret_cast<void*>(this->heap.region().base() + 64), bytes), nullptr);
  }
  EXPECT_EQ(this->heap.statistics().live_bytes, live);
  this->give(span);
  for (const std::size_t bytes : {100'000, 300'000, 400'000}) {
    EXPECT_EQ(this->heap.resize(span, bytes), nullptr) << "it was freed";
  }
  this->give(next);
  EXPECT_EQ(this->heap.statistics().live_bytes, 0U);
  EXPECT_EQ(this->heap.statistics().region.used_bytes, 0U);
  EXPECT_TRUE(reports.empty());
}

}  // namespace
}  // namespace heapwright::alloc::test
