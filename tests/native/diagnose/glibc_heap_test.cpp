// Tests how long the reader of glibc's heap goes on, with a clock of the test's own.
#include "glibc_heap.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "../child.h"

namespace heapwright::diagnose {
namespace {

// A forked process has the blocks of this one, in the main arena and in that of a thread, and does
// not change them.
class GlibcHeapTest : public testing::Test {
 protected:
  static constexpr std::size_t kBlocks = 50'000;

  void SetUp() override {
    add_blocks();
    std::thread([this] { add_blocks(); }).join();
    child = std::make_unique<meter::Child>([] {});
    memory = std::make_unique<Memory>(child->pid());
    ASSERT_EQ(memory->open(), 0);
    if (!read_glibc_heap(*memory)) {
      GTEST_SKIP() << "there is no malloc of glibc";
    }
  }
  void TearDown() override {
    for (void* block : blocks) {
      std::free(block);
    }
  }
  // Frees every second block, so that a bin is long.
  void add_blocks() {
    const std::size_t first = blocks.size();
    blocks.resize(first + kBlocks);
    for (std::size_t i = first; i < blocks.size(); ++i) {
      blocks[i] = std::malloc(1000);
    }
    for (std::size_t i = first; i < blocks.size(); i += 2) {
      std::free(blocks[i]);
      blocks[i] = nullptr;
    }
  }

  std::vector<void*> blocks;
  std::unique_ptr<meter::Child> child;
  std::unique_ptr<Memory> memory;
};

// On a busy machine the reader waits for a processor, and gives up no earlier.
TEST(CpuTime, DoesNotPassWhileTheProcessWaits) {
  const auto real = std::chrono::steady_clock::now();
  const auto before = cpu_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto used = cpu_time() - before;
  EXPECT_LT(used, (std::chrono::steady_clock::now() - real) / 2);
}

TEST_F(GlibcHeapTest, AFirstWalkMayTakeAsLongAsTheHeapIsLarge) {
  std::chrono::nanoseconds time{};
  const auto heap = read_glibc_heap(*memory, [&time] { return time += std::chrono::seconds(1); });
  ASSERT_TRUE(heap);
  for (const Arena& arena : heap->arenas) {
    EXPECT_TRUE(arena.consistent) << arena.address;
  }
}

TEST_F(GlibcHeapTest, ArenasBehindTheLimitHaveTheirSize) {
  const auto whole = read_glibc_heap(*memory);
  std::chrono::nanoseconds time{};
  const auto heap = read_glibc_heap(*memory, [&time] { return time += std::chrono::hours(1); });
  ASSERT_TRUE(whole);
  ASSERT_TRUE(heap);
  ASSERT_EQ(heap->arenas.size(), whole->arenas.size());
  for (std::size_t i = 0; i < heap->arenas.size(); ++i) {
    EXPECT_EQ(heap->arenas[i].system, whole->arenas[i].system);
    EXPECT_EQ(heap->arenas[i].threads, whole->arenas[i].threads);
  }
}

}  // namespace
}  // namespace heapwright::diagnose
