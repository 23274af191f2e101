// Compares random operations on a heap with a shadow model: contents, alignment, overlap, usable
// sizes, and statistics that equal the model's to the byte.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

struct Live {
  std::size_t bytes;
  std::size_t usable;
  unsigned char fill;
};

template <Configuration C>
class HeapModel : public HeapTest<C> {
 protected:
  using Blocks = std::map<unsigned char*, Live>;

  std::size_t some_size() {
    switch (random() % 16) {
      case 0:
        return random() % 3'000'000;
      case 1:
      case 2:
        return random() % 200'000;
      case 3:
      case 4:
      case 5:
        return random() % 33'000;
      default:
        return random() % 600;
    }
  }
  // Fills only the ends of big blocks: filling all of them would take most of the test's time.
  static void paint(unsigned char* block, std::size_t bytes, unsigned char fill) {
    std::memset(block, fill, std::min<std::size_t>(bytes, 256));
    std::memset(block + bytes - std::min<std::size_t>(bytes, 256), fill, std::min<std::size_t>(bytes, 256));
  }
  static bool painted(const unsigned char* block, std::size_t bytes, unsigned char fill) {
    const auto same = [fill](unsigned char c) { return c == fill; };
    return std::all_of(block, block + std::min<std::size_t>(bytes, 256), same) &&
           std::all_of(block + bytes - std::min<std::size_t>(bytes, 256), block + bytes, same);
  }
  void add(void* address, std::size_t bytes, std::size_t alignment) {
    ASSERT_NE(address, nullptr) << bytes;
    auto* const block = static_cast<unsigned char*>(address);
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(block) % std::max<std::size_t>(alignment, 16), 0U);
    const Live live{bytes, this->heap.usable(block), static_cast<unsigned char>(random())};
    ASSERT_GE(live.usable, bytes);
    const auto next = blocks.lower_bound(block);
    ASSERT_TRUE(next == blocks.end() || block + live.usable <= next->first) << "overlaps the next";
    if (next != blocks.begin()) {
      const auto before = std::prev(next);
      ASSERT_LE(before->first + before->second.usable, block) << "overlaps the one before";
    }
    paint(block, live.usable, live.fill);
    blocks.emplace(block, live);
  }
  typename Blocks::iterator pick() {
    auto* const low = blocks.begin()->first;
    // Small blocks lie together and large ones elsewhere: half by address, half anywhere.
    if (random() % 2 == 0) {
      auto found = blocks.lower_bound(low + random() % (std::size_t{64} << 20U));
      return found == blocks.end() ? blocks.begin() : found;
    }
    return std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
  }
  void take_one() {
    const std::size_t bytes = some_size();
    if (random() % 8 != 0) {
      add(this->take(bytes), bytes, 1);
      return;
    }
    const std::size_t alignment = std::size_t{1} << random() % 20;
    add(this->heap.allocate_aligned(bytes, alignment), bytes, alignment);
  }
  void give_one() {
    const auto one = pick();
    ASSERT_TRUE(painted(one->first, one->second.usable, one->second.fill));
    ASSERT_EQ(this->heap.usable(one->first), one->second.usable);
    unsigned char* const block = one->first;
    blocks.erase(one);
    this->give(block);
  }
  void resize_one() {
    const auto one = pick();
    const auto [block, live] = *one;
    const std::size_t bytes = random() % 3 == 0 ? some_size() : live.bytes / 2 + random() % (live.bytes + 2);
    void* const same = this->heap.resize(block, bytes);
    if (same == nullptr) {
      ASSERT_EQ(this->heap.usable(block), live.usable) << "refused, and yet changed";
      return;
    }
    blocks.erase(one);
    const std::size_t kept = std::min({live.usable, this->heap.usable(same), std::size_t{256}});
    ASSERT_TRUE(painted(static_cast<unsigned char*>(same), kept, live.fill));
    add(same, bytes, 1);
  }
  void compare() {
    std::size_t bytes = 0;
    std::size_t classed = 0;
    std::size_t large = 0;
    std::size_t large_count = 0;
    for (const auto& [block, live] : blocks) {
      bytes += live.usable;
      const bool in_region = this->heap.region().contains(block);
      classed += this->heap.class_size(block) != 0 ? 1 : 0;
      large += in_region ? 0 : live.usable;
      large_count += in_region ? 0 : 1;
    }
    const Statistics s = this->heap.statistics();
    ASSERT_EQ(s.live_bytes, bytes);
    ASSERT_EQ(s.live_blocks, classed);
    ASSERT_EQ(s.large_bytes, large);
    ASSERT_EQ(s.large_count, large_count);
    ASSERT_GE(s.region.used_bytes, bytes - large + s.cached_bytes);
    ASSERT_EQ(s.region.region_bytes, this->heap.region().bytes());
  }
  void run(int steps, bool threaded) {
    for (int step = 0; step < steps && !this->HasFatalFailure(); ++step) {
      now_ms += random() % 4;
      // Waves: mostly taking, then mostly giving.
      const unsigned taking = step / 3000 % 2 == 0 ? 55 : 35;
      const auto what = random() % 100;
      if (blocks.empty() || what < taking) {
        take_one();
      } else if (what < 90) {
        give_one();
      } else {
        resize_one();
      }
      if (step % 2500 == 0) {
        compare();
      }
      if (step % 7001 == 7000) {
        this->heap.trim();
      }
      if (threaded && step == steps / 2) {
        Heap<C>::become_threaded(this->pool);
      }
    }
    compare();
    while (!blocks.empty() && !this->HasFatalFailure()) {
      give_one();
    }
    this->heap.trim();
    compare();
    EXPECT_EQ(this->heap.statistics().region.used_bytes, 0U);
    EXPECT_EQ(this->heap.statistics().region.dirty_bytes, 0U);
    EXPECT_TRUE(reports.empty());
    if (this->heap.region().bytes() > 0) {
      const void* const base = reinterpret_cast<const void*>(this->heap.region().base());
      const std::size_t chunks = this->heap.region().bytes() / kChunkBytes;
      const std::size_t described =
          (threaded ? 2 : 1) * platform::page_size();  // and the words for remote frees
      EXPECT_LE(resident(base, chunks * kChunkBytes).value_or(SIZE_MAX), chunks * described);
    }
  }

  Blocks blocks;
  std::mt19937 random{11};  // NOLINT: the same sequence every time
};

TYPED_TEST_SUITE(HeapModel, Configurations);

TYPED_TEST(HeapModel, RandomOperations) { this->run(60'000, false); }

TYPED_TEST(HeapModel, RandomOperationsThreadedHalfWay) { this->run(20'000, true); }

TYPED_TEST(HeapModel, RandomOperationsInAReservation) {
  this->heap.region().settings.reservation = true;
  this->run(20'000, false);
}

TYPED_TEST(HeapModel, RandomOperationsKeepingNothing) {
  this->heap.region().settings.keep_bytes = 0;
  this->heap.region().settings.delay_ms = 0;
  this->run(20'000, false);
}

}  // namespace
}  // namespace heapwright::alloc::test
