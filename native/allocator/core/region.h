// The region: one contiguous range of addresses that all superblocks come from. It also decides
// which free memory returns to the kernel, and when.
//
//            map grows downward ◄─┐ ┌─► chunks grow upward
//     ─ ─ ─┬─────┬─────┬─────┬─────┬──────────────┬──────────────┬─ ─ ─
//          │ ... │ tag2│ tag1│ tag0│   chunk 0    │   chunk 1    │
//     ─ ─ ─┴─────┴─────┴─────┴─────┴──────────────┴──────────────┴─ ─ ─
//                                  base
//
// Tag i (32 bits, at base − 4·(i+1)) tells free() in one load all that it must know of superblock
// i: the heap that owns it and the free list of its class (free_list.h; 0: no blocks of a class). A
// cache line holds 16 tags, those of 1 MiB.
//
// Because the region is contiguous, one subtraction and one comparison tell whether an address is
// in it. It begins far from all addresses that the kernel would choose, so that it can grow in
// place. Where that fails (a small address space, a sanitizer), the region lies in a reservation
// of at most 64 GiB.
//
// Purging. Free superblocks and freed large blocks keep their memory as long as it is at most the
// allowance: a quarter of the memory in use, and at least `keep_bytes` (2 MiB). When there is more,
// the region purges free superblocks or unmaps freed large blocks at once, down to half of the
// allowance: the oldest of the kind that holds more. So memory falls without a clock, a thread or
// another call, even in a process that becomes idle.
//
// Freed spans. A span stays whole when it is freed, and the next span of the same length takes it:
// this saves splitting it and joining it again (docs/design-notes/exgen.md has counts). It is free
// memory like other free superblocks. All freed spans are split before the region looks for a span
// of another length, takes a superblock that holds no memory, purges, or lengthens a span. Until
// then their bits in the chunk's masks say 'in use'. The kind of their first superblock is kFree.
//
// Premature purges. If the program needs purged memory again within `delay_ms`, purging it was
// premature: the program pays for page faults. Each superblock purged prematurely must be paid for
// by 4 ms of the process's run time (16 page faults take some 0.5% of that). As long as more were
// purged prematurely, the region purges nothing. So a program whose memory use goes up and down all
// the time keeps its memory. At most ten seconds of run time are saved up for later purges. A free
// superblock may have pages that page_purger.h purged before: they count when it is used again.
//
// Lent spans. Heaps of a process with several threads keep freed spans (span_stacks.h). Their memory is
// free memory that the region cannot purge: it does not count as in use, and a heap that needs new
// memory takes all of it back first, where memory in use and free memory would exceed the peak.
//
// Peak. Memory kept after premature purges must not stay beside new memory of another kind. Even while
// purging is throttled, the region purges free memory as long as this and the memory in use exceed
// the peak of memory in use plus half of the allowance at that peak: as much as a purge leaves.
// Such purges may be premature, too, if the program replaces spans at random, so that free memory
// is in pieces. Premature purges while memory in use does not exceed its peak are a debt of their
// own. Until it is paid, the whole allowance at the peak counts. A heap empties its depot before
// memory in use exceeds its peak, since blocks in a depot count as memory in use.
//
// Huge pages. Some chunks may have them (huge_pages.h, open_chunks.h). When huge pages are in use,
// wholly free chunks are purged first.
//
// Threads: callers hold the pool's lock, except for base(), bytes(), contains() and tag(). These
// need none: a thread that has a pointer into the region got it from a thread that saw the region
// contain it. The values only grow, except in shrink(), which unmaps only free chunks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "../platform/platform.h"
#include "freed_spans.h"
#include "heap_layout.h"
#include "huge_pages.h"
#include "inlining.h"
#include "large.h"
#include "list.h"
#include "low_water.h"
#include "open_chunks.h"
#include "premature_purges.h"
#include "superblock.h"

namespace heapwright::alloc {

class Region {
 public:
  struct Settings {
    std::size_t limit_bytes = SIZE_MAX;  // of the region and of large blocks together
    std::uint64_t delay_ms = 1000;
    std::size_t keep_bytes = 2 * 1024 * 1024;  // free superblocks may always hold this much
    platform::HugePageMode huge_pages = platform::HugePageMode::kAuto;
    bool guards = false;       // an inaccessible page behind each chunk's descriptions
    bool reservation = false;  // for tests: behave as if growing in place failed
    std::uint64_t (*clock)() = platform::clock_ms;
  };
  struct Statistics {
    std::size_t region_bytes;  // address space obtained for chunks
    std::size_t used_bytes;    // in superblocks in use
    std::size_t dirty_bytes;   // in free superblocks that may hold memory
    std::size_t kept_bytes;    // in freed large blocks that are kept
    std::size_t purged_bytes;  // purged so far
    std::size_t purges;        // the number of calls
    std::size_t collapses;     // halves of chunks that became huge pages after their first access
  };

  // Takes `count` neighbouring free superblocks, at most kSuperblocksInChunk − 1; nullptr: out of
  // memory. The caller sets their kind. `number`: the class that a single superblock is for; 0:
  // none. `small`: its blocks are small enough for huge pages (HugePages::kLargestBlockBytes).
  Superblock* take(std::size_t count, std::uint8_t number = 0, bool small = false);
  // Takes `count` neighbouring free superblocks that hold memory; nullptr: there are not so many
  // together.
  HEAPWRIGHT_COLD Superblock* take_dirty(std::size_t count);
  // Returns superblocks to the region. Their tags must be 0.
  void give(Superblock* first, std::size_t count);
  // Returns a span to the region, whole if it is at most FreedSpans::kLongest long: see 'Freed
  // spans'.
  void give_span(Superblock* span);
  // Takes a freed span of `count` superblocks; nullptr: there is none. The caller sets its kind.
  Superblock* take_span(std::size_t count);
  // The same for frequent cases, without a look at memory in use: memory in use does not exceed its peak,
  // and nothing is to be purged, or purging is throttled: then the clock is read for each eighth span.
  // Otherwise they do nothing, and return false or nullptr.
  HEAPWRIGHT_INLINE bool give_span_quickly(Superblock* span) {
    const bool given = freed_spans_.put_quickly(span);
    if (given) {
      move_to_dirty(span->length);
    }
    return given;
  }
  HEAPWRIGHT_INLINE Superblock* take_span_quickly(std::size_t count) {
    Superblock* const span = freed_spans_.take_quickly(count);
    if (span != nullptr) {
      move_to_dirty(-count);
    }
    return span;
  }
  // Call it after a change of `settings`.
  void forget_span_bounds() { freed_spans_.set_bounds(INT64_MAX, -1, 0); }
  // Lengthens a span from `count` to `wanted` superblocks, if those behind it are free.
  bool grow(Superblock* first, std::size_t count, std::size_t wanted);
  // Whether the superblocks behind a span, up to `wanted` in all, are free and hold memory.
  [[nodiscard]] HEAPWRIGHT_COLD bool holds_memory_behind(Superblock* first, std::size_t count,
                                                         std::size_t wanted);
  // Purges all free superblocks and unmaps all freed large blocks. Returns whether there were any.
  bool purge_all();

  // Also unmaps the free chunks at the end. For use when address space or the limit is exhausted.
  // Call Pool::shrink_region(), which makes sure that no thread reads a description there.
  HEAPWRIGHT_COLD void shrink();

  // 0 until a superblock was taken.
  [[nodiscard]] std::uintptr_t base() const { return __atomic_load_n(&base_, __ATOMIC_RELAXED); }
  [[nodiscard]] std::size_t bytes() const { return __atomic_load_n(&bytes_, __ATOMIC_RELAXED); }
  [[nodiscard]] bool contains(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - base() < bytes();
  }
  // The index of the tag of the superblock at an offset from base(), counted in tags from base():
  // below 0.
  [[nodiscard]] static constexpr std::ptrdiff_t tag_index(std::size_t offset) {
    return ~static_cast<std::ptrdiff_t>(offset >> kSuperblockShift);
  }
  [[nodiscard]] std::uint32_t& tag(const void* address) const {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - base();
    return reinterpret_cast<std::uint32_t*>(base())[tag_index(offset)];
  }
  // Whether the superblocks taken last read as zero: not used since the kernel gave them.
  [[nodiscard]] bool last_was_clean() const { return clean_; }
  [[nodiscard]] HEAPWRIGHT_COLD Statistics statistics() const;
  [[nodiscard]] std::size_t used_superblocks() const { return used_; }
  [[nodiscard]] std::size_t purged_bytes() const { return purged_bytes_; }  // so far
  // How many free superblocks may hold memory: see 'Purging'.
  [[nodiscard]] std::size_t allowance() const { return allowance_at(in_use()); }
  // The same where `free_bytes` of the memory in use are in free blocks: memory in use counts as
  // twice the rest at most. With more than 4 * `keep_bytes` of them, the allowance has no minimum.
  [[nodiscard]] std::size_t allowance_without(std::size_t free_bytes) const {
    const std::size_t in_use_now = in_use();  // read once: other threads change the lent count
    const std::size_t rest = in_use_now - std::min(free_bytes / kSuperblockBytes, in_use_now);
    const std::size_t counted = std::min(in_use_now, 2 * rest);
    return free_bytes > 4 * settings.keep_bytes ? counted / 4 : allowance_at(counted);
  }

  // Returns the first superblock in use behind `after`, in address order; for nullptr the first of
  // all. Returns nullptr at the end.
  [[nodiscard]] Superblock* next_used(Superblock* after) const;

  Settings settings;
  Large large;            // blocks with mappings of their own, in use or kept: memory like superblocks
  std::size_t heaps = 0;  // that have a thread; 0: the only heap. Atomic: no lock guards it
  // Superblocks of freed spans that heaps keep (span_stacks.h). Atomic, and approximate: each heap reports
  // a rise of 1 MiB, and a fall of at most 3 MiB; it can be below 0 for a moment. On a cache line of its own, because all
  // threads read its neighbours.
  struct alignas(64) Lent {
    std::int64_t superblocks = 0;
  };
  Lent lent;
  [[nodiscard]] bool lends() const { return __atomic_load_n(&lent.superblocks, __ATOMIC_RELAXED) > 0; }
  // The number of heaps that share the region.
  [[nodiscard]] std::size_t sharing_heaps() const {
    return std::max(__atomic_load_n(&heaps, __ATOMIC_RELAXED), std::size_t{1});
  }

  // Address space of chunks and of large blocks, which the limit bounds.
  [[nodiscard]] std::size_t mapped_bytes() const { return bytes_ + large.mapped_bytes(); }
  // Return free memory to the kernel if there is too much. Must be called after large blocks have
  // changed: the first when memory in use has grown (see 'Peak'), the second when it has fallen
  // (see 'Purging'). A program that grows may need the free memory at once, so the second is for
  // falls only.
  void purge_above_peak();
  void purge_above_allowance();
  // Purges free superblocks that were not needed for `window_ms`, about `bytes` of them, down to
  // `keep_bytes`. `now`: milliseconds.
  void purge_unused(std::size_t bytes, std::uint64_t now, std::uint64_t window_ms);
  // Record that other code has purged memory, or has obtained memory from the kernel again.
  HEAPWRIGHT_COLD void count_purged(std::size_t bytes);
  void count_reused(std::size_t bytes);
  // Must be called before pages of a superblock are purged.
  void before_purge(const Superblock* superblock) {
    Chunk* const chunk = chunk_of(superblock);
    HugePages::break_up(chunk, index_in_chunk(superblock) / (kSuperblocksInChunk / 2));
    open_.update(chunk);
  }
  // Whether `bytes` more need new memory from the kernel: there is no free memory, or memory in use
  // would exceed its peak.
  [[nodiscard]] bool needs_new_memory(std::size_t bytes) const {
    const std::size_t wanted = (bytes + kSuperblockBytes - 1) / kSuperblockBytes;
    const std::size_t may_lend = std::min(lent_count(), allowance_at(peak_in_use_) / 2);
    return held_count() == 0 || in_use() + lent_count() + wanted > peak_in_use_ + may_lend;
  }
  // Whether a superblock in use may lie in a huge page that the allocator has asked for.
  [[nodiscard]] bool may_be_huge(const Superblock* superblock) const {
    const std::size_t half = index_in_chunk(superblock) / (kSuperblocksInChunk / 2);
    return settings.huge_pages == platform::HugePageMode::kAlways ||
           (chunk_of(superblock)->huge >> half & 1U) != 0;
  }
  // Whether premature purges are few enough to purge more.
  [[nodiscard]] bool may_purge() const { return premature_.are_paid(settings.clock()); }
  // Tells a reader in another process where the region's fields are.
  constexpr void describe(HeapLayout& layout) const {
    layout.region_base = &base_;
    layout.region_bytes = &bytes_;
    layout.used = &used_;
    layout.dirty = &dirty_count_;
    layout.purged_bytes = &purged_bytes_;
    layout.map_low = &map_low_;
  }
  // Lets a test say how much CPU time huge pages take.
  void use_cpu_clock(std::uint64_t (*cpu_us)()) { huge_pages_.cpu_us = cpu_us; }

 private:
  static constexpr std::size_t kMapStep = 64 * 1024;  // tags of 1 GiB
  static constexpr std::uint32_t kSpansPerClock = 8;  // freed while purging is throttled
  static constexpr std::size_t kDirtyToSearch = 32;   // as many as `keep_bytes` may hold by default

  HEAPWRIGHT_COLD bool start();
  HEAPWRIGHT_COLD bool start_at(std::uintptr_t base);
  HEAPWRIGHT_COLD bool start_in_reservation();
  bool obtain(std::size_t chunks);
  [[nodiscard]] platform::HugePageMode advice() const;
  [[nodiscard]] bool may_use_huge_pages() const;
  Chunk* fresh_chunk(bool huge);
  struct SuperblockRequest {
    std::size_t count;    // neighbouring superblocks
    std::uint8_t number;  // the class; 0: none
    bool huge;            // whether a chunk may be asked for huge pages
  };
  Superblock* take_open(OpenChunks::Runs& runs, std::uint64_t Chunk::* where,
                        const SuperblockRequest& request);
  Superblock* take_empty(const SuperblockRequest& request);
  void look_at_next_chunk(std::uint64_t now);
  [[nodiscard]] std::uint64_t run_ms() const { return settings.clock() - started_ms_; }
  Superblock* claim(Chunk* chunk, std::size_t index, const SuperblockRequest& request);
  [[nodiscard]] Superblock* choose_dirty(std::uint8_t number) const;
  // In superblocks: memory in use, free memory, and how much may be free while so much is in use.
  [[nodiscard]] std::size_t in_use() const { return used_ - lent_count() + large.bytes() / kSuperblockBytes; }
  [[nodiscard]] std::size_t lent_count() const {
    const std::int64_t now = __atomic_load_n(&lent.superblocks, __ATOMIC_RELAXED);
    return std::min(static_cast<std::size_t>(std::max(now, std::int64_t{0})), used_);
  }
  [[nodiscard]] std::size_t held_count() const {
    return dirty_count_ + large.kept_bytes() / kSuperblockBytes;
  }
  [[nodiscard]] std::size_t allowance_at(std::size_t in_use) const;
  void move_to_dirty(std::size_t superblocks) {
    used_ -= superblocks;
    dirty_count_ += superblocks;
  }
  [[nodiscard]] std::size_t listed_dirty() const { return dirty_count_ - freed_spans_.superblocks(); }
  void set_span_bounds();
  void make_free(Superblock* first, std::size_t count);
  HEAPWRIGHT_COLD void split_freed_spans();
  void purge(std::size_t count);  // so many superblocks of free memory, or all
  void purge_around(Superblock* superblock, std::size_t most = SIZE_MAX);

  std::uintptr_t base_ = 0;
  std::size_t bytes_ = 0;       // of usable chunks
  std::uintptr_t map_low_ = 0;  // tags are mapped from here
  std::uintptr_t end_ = 0;      // of the mapped chunks; those from base_ + bytes_ on are untouched
  std::uintptr_t limit_ = 0;    // end of the reservation, or of the addresses that the region may grow to
  std::uintptr_t map_limit_ = 0;
  bool reserved_ = false;
  bool clean_ = false;
  OpenChunks open_;
  HugePages huge_pages_;
  std::size_t next_look_ = 0;  // offset of the chunk that HugePages looks at next
  List<Superblock> dirty_;     // free superblocks that hold memory, the latest first
  FreedSpans freed_spans_;
  std::size_t used_ = 0;         // superblocks
  std::size_t peak_in_use_ = 0;  // superblocks, and as many as large blocks would fill
  std::size_t dirty_count_ = 0;  // free superblocks that may hold memory, those of freed spans included
  std::uint64_t started_ms_ = 0;
  PrematurePurges premature_;
  LowWater low_water_;  // of the superblocks in dirty_
  std::size_t purged_bytes_ = 0;
  std::size_t purges_ = 0;
};

}  // namespace heapwright::alloc
