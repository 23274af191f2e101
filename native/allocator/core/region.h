// One contiguous stretch of address space, handed out in superblocks, and what of it goes back to the kernel
// when.
//
//            map grows downward ◄─┐ ┌─► chunks grow upward
//     ─ ─ ─┬─────┬─────┬─────┬─────┬──────────────┬──────────────┬─ ─ ─
//          │ ... │ tag2│ tag1│ tag0│   chunk 0    │   chunk 1    │
//     ─ ─ ─┴─────┴─────┴─────┴─────┴──────────────┴──────────────┴─ ─ ─
//                                  base
//
// tag i (32 bits, at base − 4·(i+1)) says in one load what free() must know of superblock i: where its
// class's front list stands (0: not blocks of a class). 16 superblocks to a cache line: the tags of 1 MiB of
// heap.
//
// Being contiguous, 'is this ours' is one subtraction and one compare. The place is far from everything the
// kernel would choose, so that growing in place works; where it does not (a small address space, a
// sanitizer), the region lives in a reservation, as large as can be had.
//
// Giving back. Superblocks that become free, and large blocks that are freed, keep their memory while it is little: at
// most a quarter of what is in use, at least 2 MiB. What goes beyond is given back at once, oldest first, down to half
// of that. So memory falls without a clock, a thread or another call: also in a process that does nothing any more.
// That was wrong if the program wants the memory again within `delay_ms`: it pays for page faults. Such regrets are
// counted against the time the process has run, one superblock for four milliseconds (16 page faults: some 0.5 % of it);
// while there are more of them, nothing is given back. So a program whose memory goes up and down all the time keeps it;
// but not beside new memory of another kind: free superblocks stay, with what is in use, within the most that ever was in
// use at once and what may be kept.
//
// Threads: who shares a region locks it. base(), bytes(), contains() and tag() may be asked without: they
// only grow, and whoever has a pointer into the region has it from a thread that saw it there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../platform/platform.h"
#include "list.h"
#include "superblock.h"

namespace heapwright::alloc {

class Region {
 public:
  static constexpr std::uint64_t kMsPerPrematurePurge =
      4;  // of run time, that pay for a superblock's page faults

  struct Settings {
    std::size_t limit_bytes = SIZE_MAX;  // of region and large blocks together
    std::uint64_t delay_ms = 1000;
    std::size_t keep_bytes = 2 * 1024 * 1024;  // what free superblocks may hold at least
    platform::HugePages huge_pages = platform::HugePages::kAsSystem;
    bool guards = false;       // a page without access behind each chunk's descriptions
    bool reservation = false;  // as if growing in place did not work
    std::uint64_t (*clock)() = platform::clock_ms;
  };
  struct Statistics {
    std::size_t region_bytes;  // address space obtained for chunks
    std::size_t used_bytes;    // in superblocks in use
    std::size_t dirty_bytes;   // in free ones that may hold memory
    std::size_t purged_bytes;  // given back so far
    std::size_t purges;        // in so many calls
  };

  // Neighbouring free superblocks, or nullptr: out of memory. At most kSuperblocksInChunk − 1. Their kind is
  // the caller's to set. `number`: of the class that a single one is for.
  Superblock* take(std::size_t count, std::uint8_t number = 0);
  // Gives them back; their tags must be 0.
  void give(Superblock* first, std::size_t count);
  // More superblocks at the end of a span, if those behind it are free.
  bool grow(Superblock* first, std::size_t count, std::size_t wanted);
  // Gives all memory of free superblocks to the kernel; whether there was any.
  bool purge_all();

  // Gives the address space of free chunks at the end back as well: for when there is no other left.
  void shrink();

  // 0 until something was taken.
  [[nodiscard]] std::uintptr_t base() const { return __atomic_load_n(&base_, __ATOMIC_RELAXED); }
  [[nodiscard]] std::size_t bytes() const { return __atomic_load_n(&bytes_, __ATOMIC_RELAXED); }
  [[nodiscard]] bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - base() < bytes();
  }
  [[nodiscard]] std::uint32_t& tag(const void* address) const {
    const std::size_t number = (reinterpret_cast<std::uintptr_t>(address) - base()) >> kSuperblockShift;
    return reinterpret_cast<std::uint32_t*>(base())[-1 - static_cast<std::ptrdiff_t>(number)];
  }
  // Whether what was last taken reads as zero: not used since the kernel gave it.
  [[nodiscard]] bool last_was_clean() const { return clean_; }
  [[nodiscard]] Statistics statistics() const;
  // How many free superblocks may hold memory: see 'Giving back'.
  [[nodiscard]] std::size_t allowance() const;

  // The first superblock in use at or after a chunk and index, in address order: to walk over all. nullptr at
  // the end.
  [[nodiscard]] Superblock* next_used(Superblock* after) const;

  Settings settings;
  std::size_t large_bytes = 0;  // in large blocks; counts towards the limit
  std::size_t kept_bytes = 0;   // in large blocks that were freed and kept

  // How many superblocks' worth of memory is to be given back now.
  [[nodiscard]] std::size_t excess() const;
  // Gives free superblocks back that are too much beside what is in use now, whatever is regretted.
  void purge_excess();
  // Memory has been given back otherwise than by give(); memory has been taken anew from the kernel.
  void count_purged(std::size_t bytes);
  void count_reused(std::size_t bytes);
  // Whether regrets are few enough to give more back.
  [[nodiscard]] bool may_purge() const;

 private:
  static constexpr std::size_t kMapStep = 64 * 1024;  // tags of 1 GiB
  static constexpr std::size_t kDirtyToSearch = 32;   // what `keep_bytes` may hold by default

  bool start();
  bool start_at(std::uintptr_t base);
  bool start_in_reservation();
  bool obtain(std::size_t chunks);
  [[nodiscard]] platform::HugePages advice() const;
  Chunk* fresh_chunk();
  Superblock* claim(Chunk* chunk, std::size_t index, std::size_t count);
  [[nodiscard]] Superblock* choose_dirty(std::uint8_t number) const;
  void purge(std::size_t count);  // so many free superblocks, or all that hold memory
  void purge_oldest();

  std::uintptr_t base_ = 0;
  std::size_t bytes_ = 0;       // of chunks that can be used
  std::uintptr_t map_low_ = 0;  // tags exist from here
  std::uintptr_t end_ = 0;      // of what was obtained; chunks from base_ + bytes_ on are untouched
  std::uintptr_t limit_ = 0;    // of the reservation, or of what makes sense
  std::uintptr_t map_limit_ = 0;
  bool reserved_ = false;
  bool clean_ = false;
  List<Chunk> open_;        // with a free superblock
  List<Superblock> dirty_;  // free and holding memory, the latest first
  std::size_t used_ = 0;    // superblocks
  std::size_t dirty_count_ = 0;
  std::size_t peak_in_use_ = 0;  // superblocks and large blocks' worth of them, at once, so far
  std::uint64_t started_ms_ = 0;
  std::uint64_t last_purge_ms_ = 0;   // the last time
  std::size_t recently_purged_ = 0;   // bytes given back, to be regretted if they are wanted soon
  std::size_t premature_purges_ = 0;  // bytes
  std::size_t purged_bytes_ = 0;
  std::size_t purges_ = 0;
};

}  // namespace heapwright::alloc
