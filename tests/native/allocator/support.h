// Provides parts of the tests of the allocators' core: configurations, a clock to set, resident
// pages, and the faults that were reported.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/heap_slow_paths.h"

namespace heapwright::alloc::test {

template <std::size_t kPerDoubling, std::size_t kBytes, std::size_t kBlocks>
struct Configured {
  static constexpr const char* kName = "test";
  static constexpr std::size_t kClassesPerDoubling = kPerDoubling;
  static constexpr std::size_t kCacheBytesPerClass = kBytes;
  static constexpr std::size_t kCacheBlocksPerClass = kBlocks;
  static constexpr bool kSecure = false;
  static constexpr bool kStartsSingleThreaded = true;
};
using Coarse = Configured<4, 16 * 1024, 128>;
using Usual = Configured<8, 16 * 1024, 128>;
using Fine = Configured<16, 32 * 1024, 256>;
using TinyCaches = Configured<8, 64, 2>;
using SmallCaches = Configured<4, 512, 7>;
using Configurations = testing::Types<Coarse, Usual, Fine, TinyCaches, SmallCaches>;

// A clock that stands still until it is set.
inline std::uint64_t now_ms = 0;
inline std::uint64_t test_clock() { return now_ms; }

// How many bytes of a stretch of address space are in memory; nothing if it is not mapped
// throughout.
inline std::optional<std::size_t> resident(const void* address, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  if (mincore(const_cast<void*>(address), bytes, pages.data()) != 0) {
    return std::nullopt;
  }
  std::size_t count = 0;
  for (const unsigned char one : pages) {
    count += one & 1U;
  }
  return count * page;
}

// Unmaps a region that grew in place, so that the next one may lie there.
inline void abandon(const Region& region) {
  constexpr std::uintptr_t kReservationsAbove = 0x6000'0000'0000;
  constexpr std::size_t kTags = 512 * 1024;
  constexpr std::size_t kAhead = 16 * kChunkBytes;
  if (region.base() != 0 && region.base() < kReservationsAbove) {
    munmap(reinterpret_cast<void*>(region.base() - kTags), kTags + region.bytes() + kAhead);
  }
}

// Links blocks in their order.
inline BlockChain linked(const std::vector<Block*>& blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i]->next = i + 1 < blocks.size() ? blocks[i + 1] : nullptr;
  }
  return {blocks.empty() ? nullptr : blocks.front(), blocks.size()};
}

// Takes `count` blocks of a class, four at a time where no whole free list leaves.
template <Configuration C>
std::vector<Block*> take(OwnedSuperblocks<C>& owned, std::size_t class_number, std::size_t count) {
  std::vector<Block*> taken;
  while (taken.size() < count) {
    for (Block* block = owned.refill(class_number, 4).first; block != nullptr; block = block->next) {
      taken.push_back(block);
    }
  }
  EXPECT_EQ(taken.size(), count);
  return taken;
}

struct Reported {
  const void* address;
  Fault fault;
  bool operator==(const Reported&) const = default;
};
inline std::vector<Reported> reports;
inline void report(const void* address, Fault fault) { reports.push_back({address, fault}); }
inline void PrintTo(const Reported& one, std::ostream* out) {
  *out << one.address
       << (one.fault == Fault::kDoubleFree ? " twice"
           : one.fault == Fault::kInterior ? " inside"
                                           : " foreign");
}

// A heap, and malloc, free and realloc on top of it, as a library puts them together.
template <Configuration C>
class HeapTest : public testing::Test {
 protected:
  HeapTest() {
    reports.clear();
    now_ms = 1'000'000;
    pool.on_fault = report;
    heap.region().settings.clock = test_clock;
    heap.region().settings.huge_pages = platform::HugePageMode::kNever;
  }
  ~HeapTest() override { abandon(heap.region()); }

  void* take(std::size_t bytes) {
    void* const block = heap.allocate(bytes);
    return block != nullptr ? block : heap.allocate_slow(bytes);
  }
  void give(void* address) {
    Fault fault{};
    if (!heap.finish_free(heap.free(address), address, fault)) {
      report(address, fault);
    }
  }

  std::vector<void*> take_all(std::size_t count, std::size_t bytes) {
    std::vector<void*> blocks(count);
    std::ranges::generate(blocks, [&] { return take(bytes); });
    return blocks;
  }
  void give_all(const std::vector<void*>& blocks) {
    std::ranges::for_each(blocks, [&](void* block) { give(block); });
  }

  Pool pool;
  Heap<C> heap{pool};
};

}  // namespace heapwright::alloc::test
