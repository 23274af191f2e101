// Decides, with `huge_pages=auto`, which halves of chunks the kernel may back by a page of 2 MiB.
//
//     chunk ─► ┌───────────────────────┬───────────────────────┐
//              │ half 0                │ half 1                │   2 MiB each, aligned
//              │ descriptions, sb 1–31 │ superblocks 32–63     │
//              └───────────────────────┴───────────────────────┘
//     Chunk::huge    bit i: half i may have a huge page
//     Chunk::full    bit i: half i had no free superblock at the last look
//
// A huge page makes all of its half resident, used or not. These rules bound the memory that is
// resident and unused:
//
// - A heap below 32 MiB gets none. Without `huge`, a half is advised against huge pages.
// - A wholly free chunk gets huge pages, before its first access, if a superblock for small blocks
//   is taken, and the superblocks that heaps may be filling, one for each class and heap, are at
//   most 1/kShare of those in use. Such chunks are filled from their beginning, before another one
//   is begun. So at most 1/kShare of the heap and one half are resident and unused.
// - Only small blocks take memory from such a chunk, as long as there is other memory: spans, large
//   blocks and large classes are often accessed in part only.
// - A half without a free superblock, at two looks in turn, of which 31/32 are resident, is
//   collapsed into a huge page.
// - Collapses may take 1% of the process's run time. First accesses to huge pages may take 1% of
//   it more than the page faults that they save; beyond that, no huge page is asked for. At most
//   0.1 s of each share can be saved up. A first access clears 2 MiB, which takes some 200 µs, or 4
//   ms in a virtual machine whose host must find the memory first.
// - Before a part of a half is purged, the half loses `huge`. Otherwise the kernel would fill it
//   again.
//
// Whether the system gives huge pages is not read but tried: a huge page is resident as a whole
// after its first access. After a refusal the heap must grow by an eighth before it asks again.
// Guard pages split the first half, so hardened builds have none.
//
// The caller holds the pool's lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "../platform/platform.h"
#include "superblock.h"

namespace heapwright::alloc {

class HugePages {
 public:
  static constexpr std::size_t kSmallHeap = std::size_t{32} << 20U;  // a smaller heap gets no huge pages
  static constexpr std::size_t kHalfBytes = kChunkBytes / 2;
  static constexpr std::size_t kShare = 16;
  static constexpr std::uint8_t kBothHalves = 3;
  static constexpr std::uint64_t kSecondHalf = 0xffff'ffff'0000'0000U;  // its superblocks
  static constexpr std::size_t kLargestBlockBytes = 4096;  // larger blocks are often accessed in part only

  // Counts a superblock that a class takes (+1) or returns (−1).
  void count(std::uint8_t number, int change) {
    std::uint32_t& used = used_by_class_[number];
    const bool had = used != 0;
    used += static_cast<std::uint32_t>(change);
    classes_ += static_cast<std::size_t>(used != 0) - static_cast<std::size_t>(had);
  }
  // Whether the next superblock for small blocks may lie in a chunk of huge pages.
  //
  // used   superblocks in use
  // heaps  how many heaps share the region
  [[nodiscard]] bool pay_off(std::size_t used, std::size_t heaps) const {
    return used >= ask_from_ && classes_ * heaps <= used / kShare;
  }
  // Whether first accesses are within their share of the process's run time so far.
  //
  // run_ms  the run time of the process so far, in milliseconds
  [[nodiscard]] bool may_ask(std::uint64_t run_ms) const { return access_us_ <= share(run_ms); }
  // Asks for huge pages for a chunk whose superblocks are free and hold no memory.
  //
  // used   superblocks in use
  // fresh  whether nothing of the chunk was accessed; else only its descriptions
  void ask(Chunk* chunk, std::size_t used, bool fresh, std::uint64_t run_ms);
  // Whether these superblocks are the first of half 1 to be used, and the half may have a huge
  // page.
  static bool begins_second_half(const Chunk* chunk, std::uint64_t superblocks) {
    return (chunk->huge & 2U) != 0 && (superblocks & kSecondHalf) != 0 &&
           (chunk->free & ~chunk->dirty & kSecondHalf) == kSecondHalf;
  }
  // Must then be called before they are used: makes the huge page resident, or refuses it.
  void begin_second_half(Chunk* chunk, std::uint64_t run_ms);
  // Advises against huge pages in the halves that have them.
  static void refuse(Chunk* chunk, std::uint8_t halves);
  // Must be called before a part of a half is purged.
  static void break_up(Chunk* chunk, std::size_t half);
  // Purges the pages of free bits (free_bits.h) that no superblock in use needs.
  static void purge_free_bits(Chunk* chunk);
  // Must be called before the free superblocks from `from` to `to` − 1 are purged.
  static void before_purge(Chunk* chunk, std::size_t from, std::size_t to);
  // Looks at a chunk, and collapses full halves. Returns whether it did.
  bool look(Chunk* chunk, std::uint64_t run_ms);

  std::uint64_t (*cpu_us)() = platform::cpu_us;  // another one in tests

  // How many halves were collapsed.
  [[nodiscard]] std::size_t collapses() const { return collapses_; }

 private:
  static constexpr std::uint64_t kBudget = 100;          // each share is 1/kBudget of the run time
  static constexpr std::int64_t kPageFaultsUs = 256;     // minimum time of the page faults of a half
  static constexpr std::int64_t kMaxUnusedUs = 100'000;  // of a share
  // The time of an attempt that collapses nothing counts this many times.
  static constexpr std::uint64_t kFailedCollapseWeight = 10;
  static constexpr std::size_t kResidentParts = 32;  // at most one of so many parts may be absent

  static std::int64_t share(std::uint64_t run_ms) {
    return static_cast<std::int64_t>(run_ms * 1000 / kBudget);
  }
  // Adds to the time used of a share, of which at most kMaxUnusedUs are unused before.
  static void spend(std::int64_t& sum, std::int64_t us, std::uint64_t run_ms) {
    sum = std::max(sum, share(run_ms) - kMaxUnusedUs) + us;
  }
  bool collapse(Chunk* chunk, std::size_t half, std::uint64_t run_ms);

  std::array<std::uint32_t, 256> used_by_class_{};
  std::size_t classes_ = 0;       // that have a superblock
  std::size_t ask_from_ = 0;      // superblocks in use
  std::int64_t access_us_ = 0;    // of first accesses, less the page faults that they saved
  std::int64_t collapse_us_ = 0;  // of collapses, and the weighted time of failed attempts
  std::size_t collapses_ = 0;
  bool given_ = false;  // whether the last chunk that was asked for got huge pages
};

}  // namespace heapwright::alloc
