// A heap: size classes over superblocks, with a short list in front of each class.
//
//     malloc ──► front list of the class ──(empty)──► refill: half a list from the current superblock, or the next in the queue
//     free   ──► front list of the class ──(full)───► spill: all but the newest quarter, each to its superblock
//
// The front list is what makes both fast and the cache happy: what was freed last is handed out next,
// whichever superblock it is of, and neither touches a superblock's description. It is short (kCacheBytesPerClass,
// kCacheBlocksPerClass), so superblocks become empty, and go back to the region, all but as early as without it.
//
//     Hot (one cache line for four classes)
//     ┌──────┬──────┬─┐┌──────┬──────┬─┐     ┌─────────────────────┐┌──────┬───────┐
//     │ head │ room │ ││ head │ room │ │ ... │ offset of a size's  ││ base │ limit │
//     └──────┴──────┴─┘└──────┴──────┴─┘     │ front (65 × 16 bit) ││      │       │
//       front 0          front 1             └─────────────────────┘└──────┴───────┘
//                                                                     the region
//
// `frees_left` counts frees down to the next look at a list, not its length: malloc need not write it. If a list is then found
// as long as it can be, the program only frees: what was freed long ago will not be wanted soon and leaves the cache, so
// that looking at its links is slow. All of the list goes back at once, and the next looks come sooner. Front 0
// belongs to no class; its room is 0, so that freeing a span or nonsense, whose tag is 0, ends in the slow
// path by the test that a full list needs anyway. Likewise `limit`: NULL, foreign pointers and large blocks
// fail the compare 'is it in the region', and a process with threads sets it to 0, so that every free fails
// it.
//
// Threads. A heap belongs to one thread; what heaps share is in the pool, behind its lock. A tag's upper half
// is the number of the heap that owns the superblock: a heap frees what is its own by the fast path;
// everything else is remote (heap_remote.h): it is collected in `strays`, by superblock, and goes to the
// superblock's word in chains. A heap of a process that has one thread (`free_single_threaded`) need not look whose a
// block is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "config.h"
#include "list.h"
#include "pool.h"
#include "quarantine.h"
#include "remote_queue.h"
#include "size_classes.h"
#include "statistics.h"
#include "superblock.h"

#define HEAPWRIGHT_INLINE __attribute__((always_inline)) inline
#define HEAPWRIGHT_COLD __attribute__((noinline, cold))

namespace heapwright::alloc {

// What was wrong with a pointer that was given to free or realloc.
enum class Fault : std::uint8_t {
  kForeign,
  kInterior,
  kDoubleFree,
  kOverrun,
  kWriteAfterFree,
  kWrongOrigin,
  kWrongSize
};

template <Configuration C>
class Heap {
 public:
  using Classes = SizeClasses<C::kClassesPerDoubling>;
  static constexpr std::size_t kSmall = 1024;  // sizes whose class comes from a table
  static constexpr std::size_t kExtra =
      C::kSecure ? Hardening::kMarkBytes : 0;  // of each block, not the program's

  struct FreeList {
    Block* head;
    std::int32_t frees_left;
    std::int32_t flush_all_above;  // at the next look, if no block is taken until then
  };

  struct Hot {
    std::array<FreeList, Classes::kCount> lists{};  // first: a tag is an offset from here
    std::array<std::uint16_t, kSmall / Classes::kGranule + 1> offsets{};
    std::uintptr_t base = 0;
    std::size_t limit = 0;
    std::uint32_t owner = 0;  // number of this heap << 16, as in tags
  };

 private:
  Hot hot_;  // the first member, so that it begins where the heap and the library do

 public:
  constexpr explicit Heap(Pool& pool, std::uint32_t number = 0) : pool_(&pool) {
    hot_.owner = number << kOwnerShift;
    for (std::size_t i = 0; i < hot_.offsets.size(); ++i) {
      hot_.offsets[i] = static_cast<std::uint16_t>(Classes::of(i * Classes::kGranule) * sizeof(FreeList));
    }
    for (std::size_t i = 1; i < Classes::kCount; ++i) {
      hot_.lists[i].frees_left = max_cached(i);
    }
  }

  // The fast path; nullptr: ask allocate_slow.
  HEAPWRIGHT_INLINE void* allocate(std::size_t bytes) {
    if (bytes <= kSmall - kExtra) [[likely]] {
      const std::size_t granules = (bytes + kExtra + Classes::kGranule - 1) / Classes::kGranule;
      std::size_t offset = hot_.offsets[granules];
      Block* const block = list_at(hot_.lists.data(), offset).head;
      if (block != nullptr) [[likely]] {
        platform::hide_from_optimizer(offset);  // or the sum is kept in a register: an instruction more
        list_at(hot_.lists.data(), offset).head = next_of(block);
        return hand_out(block, bytes);
      }
    }
    return nullptr;
  }

  enum class FreeResult : std::uint8_t { kDone, kListFull, kSlow };
  // The fast path: kListFull wants flush_full_list(), kSlow wants free_slow().
  HEAPWRIGHT_INLINE FreeResult free(void* address, FreedAs freed_as = {}) {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - hot_.base;
    if (offset >= hot_.limit) [[unlikely]] {
      return FreeResult::kSlow;
    }
    const std::uint32_t tag = tag_at(offset) ^ hot_.owner;
    if (tag >= 1U << kOwnerShift) [[unlikely]] {
      return FreeResult::kSlow;
    }
    return free_tagged(tag, address, freed_as);
  }
  // The same for the only heap there is.
  HEAPWRIGHT_INLINE FreeResult free_single_threaded(void* address, FreedAs freed_as = {}) {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - hot_.base;
    if (offset >= hot_.limit) [[unlikely]] {
      return FreeResult::kSlow;
    }
    return free_tagged(tag_at(offset), address, freed_as);
  }
  // After free() said kSlow: whether it was another heap's block, and is on its way there now. The short way of free_slow().
  HEAPWRIGHT_INLINE bool try_free_remote(void* address) {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - hot_.base;
    if (C::kSecure || offset >= hot_.limit || tag_at(offset) % (1U << kOwnerShift) == 0) {
      return false;
    }
    Superblock* const superblock = superblock_of(address);
    auto* const block = static_cast<Block*>(address);
    RemoteFreeBatch& batch = batch_of(superblock);
    if (batch.superblock != superblock || !begins_block(batch.reciprocal, block)) [[unlikely]] {
      free_remote(superblock, block);
    } else if (add_to_batch(batch, block)) {
      send(batch);
    }
    return true;
  }
  // The size of a block with a size class, or 0: ask usable().
  [[nodiscard]] HEAPWRIGHT_INLINE std::size_t class_size(const void* address) const {
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(address) - hot_.base;
    if (C::kSecure || offset >= hot_.limit) [[unlikely]] {  // hardened: the mark tells
      return 0;
    }
    return kUsable[tag_at(offset) % (1U << kOwnerShift) / sizeof(FreeList)];
  }
  // Whether a block with so many usable bytes may stay for `bytes`: not too small, and not half empty.
  static HEAPWRIGHT_INLINE bool fits_in_place(std::size_t usable, std::size_t bytes) {
    return bytes <= usable && (bytes >= usable / 2 || usable <= Classes::kGranule);
  }

  // Any size; nullptr: out of memory. `zero`: is_zero() would be welcome.
  void* allocate_slow(std::size_t bytes, bool zero = false);
  // At a multiple of `alignment`, a power of two.
  void* allocate_aligned(std::size_t bytes, std::size_t alignment);
  // Whether the block's memory reads as zero already; for calloc, of the block allocate_slow just gave.
  [[nodiscard]] bool is_zero(const void* block) const { return zeroed_block_ == block; }
  // After free() said kListFull: `address` has been pushed to its front.
  void flush_full_list(void* address);
  // Any address. False: not a block; `fault` says what it is.
  bool free_slow(void* address, Fault& fault, FreedAs freed_as = {});
  // Usable bytes of a block, or 0.
  [[nodiscard]] std::size_t usable(const void* address) const;
  // Hardened: the block was made by one of C++'s operators.
  void set_origin(void* address, Origin origin);
  // More or less bytes where the block stands (or, for a large one, elsewhere); nullptr: must be copied.
  void* resize(void* address, std::size_t bytes);

  // What a front list may hold from now on; the lists are emptied.
  void set_cache_bytes(std::size_t bytes);
  // Before the process gets a second thread; the pool is locked from now on.
  static void become_threaded(Pool& pool);
  // Takes over everything another heap has, which is empty then: its fast paths find nothing any more.
  void take_over(Heap& other);
  // What other threads have given back, and what this one has of theirs: each where it belongs.
  void drain_remote();
  // Gives back all that is in front lists, and what of others' it has collected.
  void flush_cache();
  // The thread ends: what it has goes where it belongs, and whatever comes back after is brought home by whoever brings it.
  void on_thread_exit();
  // A fork keeps it (platform::Forking).
  platform::Lock& lock() { return lock_; }
  // This heap is one of those that the process has since its last fork.
  void keep_in_child() { forks_ = pool_->forks; }
  // Everything that is nobody's goes back to the kernel; whether anything did.
  bool trim();
  // The other heaps' front lists cannot be looked into: what is in them counts as live.
  [[nodiscard]] Statistics statistics() const;
  [[nodiscard]] Region& region() const { return pool_->region; }

  // Among the heaps of threads that have ended.
  Heap* next_idle = nullptr;
  // What to do about a wrong pointer.
  void (*on_fault)(const void* address, Fault fault) = nullptr;

 private:
  static constexpr unsigned kOwnerShift = 16;
  // Blocks of another heap's superblock on their way there; and what of its description free() must know, which the
  // owner keeps writing to: its line is read once for each batch.
  struct RemoteFreeBatch {
    Superblock* superblock = nullptr;
    Block* first = nullptr;
    Block* last = nullptr;
    std::uint32_t count = 0;
    std::uint32_t bytes = 0;
    std::uint32_t size = 0;
    std::uint32_t reciprocal = 0;
  };
  static constexpr std::size_t kBatches = 64;
  static constexpr std::size_t kMinCachedBlocks = 8;  // blocks, or large ones would be handed out cold
  static constexpr std::size_t kMinPurgeBlockBytes =
      256;  // bytes of a block: of smaller ones hardly a page is ever free
  static constexpr std::uint32_t kClaimDivisor = 4;  // a quarter of a superblock's blocks, to take it over
  static constexpr std::size_t kDrainInterval = 32;  // superblocks started, at least
  static constexpr std::uint32_t kMaxBatchBytes = 4 * 1024;  // of one superblock, before they go

  // Held while superblocks of a heap change: by its thread, or by one that brings blocks home (heap_remote.h).
  // Nobody holds two of them. A process with one thread needs none.
  class Guard {
   public:
    explicit Guard(Heap& heap) : heap_(heap), held_(heap.pool_->threaded && !platform::single_threaded()) {
      if (held_) {
        heap_.lock_.lock();
      }
    }
    ~Guard() {
      if (held_) {
        heap_.lock_.unlock();
      }
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Heap& heap_;
    bool held_;
  };

  // Of a description, what only the owner writes and others may look at.
  template <class T>
  static void store_shared(T& field, T value) {
    __atomic_store_n(&field, value, __ATOMIC_RELAXED);
  }
  template <class T>
  static T load_shared(const T& field) {
    return __atomic_load_n(&field, __ATOMIC_RELAXED);
  }
  static std::uint32_t claim_threshold(const Superblock* superblock) {
    return std::max(superblock->capacity / kClaimDivisor, 1U);
  }
  // Written by who becomes owner, read by all: a hint but for the owner itself.
  [[nodiscard]] HEAPWRIGHT_INLINE std::uint32_t tag_at(std::size_t offset) const {
    const auto number = ~static_cast<std::ptrdiff_t>(offset >> kSuperblockShift);
    return __atomic_load_n(reinterpret_cast<const std::uint32_t*>(hot_.base) + number, __ATOMIC_RELAXED);
  }
  HEAPWRIGHT_INLINE FreeResult free_tagged(std::uint32_t tag, void* address, FreedAs freed_as) {
    if constexpr (C::kSecure) {
      if (tag != 0) {
        quarantine_block(address, freed_as);
      }
      return tag != 0 ? FreeResult::kDone : FreeResult::kSlow;
    }
    return push(list_at(hot_.lists.data(), tag), address) ? FreeResult::kDone : FreeResult::kListFull;
  }
  static constexpr auto kUsable = [] {
    std::array<std::uint32_t, Classes::kCount> sizes{};
    for (std::size_t i = 1; i < Classes::kCount; ++i) {
      sizes[i] = static_cast<std::uint32_t>(Classes::bytes(i) - kExtra);
    }
    return sizes;
  }();

  // Links between free blocks; with hardening they are encoded, and a broken one ends the list.
  [[nodiscard]] HEAPWRIGHT_INLINE Block* next_of(const Block* block) const {
    if constexpr (C::kSecure) {
      Block* const next = pool_->hardening.decode(block);
      if (next != nullptr && (!region().contains(next) || reinterpret_cast<std::uintptr_t>(next) % 16 != 0))
          [[unlikely]] {
        report(block, Fault::kWriteAfterFree);
        return nullptr;
      }
      return next;
    } else {
      return block->next;
    }
  }
  HEAPWRIGHT_INLINE void set_next(Block* block, Block* next) const {
    if constexpr (C::kSecure) {
      next = pool_->hardening.encode(block, next);
    }
    block->next = next;
  }
  // A block goes to the program, for so many bytes.
  HEAPWRIGHT_INLINE void* hand_out(Block* block, std::size_t bytes) const {
    if constexpr (C::kSecure) {
      prepare(block, bytes);
    }
    return block;
  }
  void prepare(Block* block, std::size_t bytes) const;
  // A block comes from the program; false: it must not, which has been reported.
  bool accept_free(void* address, FreedAs freed_as) const;
  void check(const void* address, const Hardening::Mark& mark, FreedAs freed_as) const;
  // The same for one that may go on to be used again, by way of the quarantine.
  void quarantine_block(void* address, FreedAs freed_as);
  void leave_quarantine(Block* block);
  void empty_quarantine();
  // Of threads that free one span at the same time the first one gets true.
  bool claim_span(Superblock* span);
  // A claimed span goes into quarantine; the pool is locked.
  void quarantine_span(Superblock* span);
  void return_span(Superblock* span);
  [[nodiscard]] Hardening::Mark mark_of(const void* address) const;
  void mark_span(Superblock* superblock, std::size_t bytes, Origin origin) const;
  void wipe_returned(Superblock* first, std::size_t count) const;

  // What a front may hold before it is looked at.
  [[nodiscard]] constexpr std::int32_t max_cached(std::size_t number) const {
    const std::size_t fit = cache_bytes_per_class_ / Classes::bytes(number);
    return static_cast<std::int32_t>(std::clamp(fit, kMinCachedBlocks, C::kCacheBlocksPerClass));
  }
  static HEAPWRIGHT_INLINE FreeList& list_at(FreeList* lists, std::size_t offset) {
    return *reinterpret_cast<FreeList*>(reinterpret_cast<char*>(lists) + offset);
  }
  // False: the front is full.
  HEAPWRIGHT_INLINE bool push(FreeList& list, void* address) const {
    auto* const block = static_cast<Block*>(address);
    set_next(block, list.head);
    list.head = block;
    return --list.frees_left >= 0;
  }

  void* allocate_class(std::size_t number, std::size_t bytes);
  void* allocate_span(std::size_t bytes);
  // What a block of whole superblocks may use of them, and how many it takes; hardened, with room for its mark.
  static constexpr std::size_t kSpanExtra = C::kSecure ? Hardening::kEndBytes : 0;
  static std::size_t span_size(std::size_t bytes) {
    return round_up(std::max(bytes + kSpanExtra, std::size_t{1}), platform::page_size());
  }
  static std::size_t superblocks_for(std::size_t bytes) {
    return std::max((bytes + kSpanExtra + kSuperblockBytes - 1) / kSuperblockBytes, std::size_t{1});
  }
  void* allocate_large(std::size_t bytes, std::size_t alignment, bool zero = false);
  Block* refill(std::size_t number);
  static bool has_blocks(const Superblock* superblock);
  Block* take_batch(Superblock* superblock);
  void make_current(Superblock* superblock);
  void clear_current(Superblock* superblock);
  Superblock* start_superblock(std::size_t number);
  // So many blocks at once at least: hardened, enough for an order that cannot be guessed.
  static constexpr std::size_t kShuffled =
      C::kSecure ? std::min(std::size_t{8}, std::size_t{C::kCacheBlocksPerClass}) : 1;
  Block* carve(Superblock* superblock, std::size_t most, std::size_t& count);
  Block* carve_shuffled(char* first, std::size_t size, std::size_t count);
  void split_free_blocks(Superblock* superblock, std::size_t most, std::size_t& count);
  void flush_list(std::size_t number, std::int32_t keep);
  const Block* first_repeated(const Block* first) const;
  // Whether a superblock's block begins here. In granules of 16 bytes, with r = ⌈2³²/size⌉: the low half of offset·r
  // is at most the offset, and so below 2¹⁶, for a multiple of the size, and at least r > 2¹⁶ for everything else.
  static bool begins_block(std::uint32_t reciprocal, const void* address) {
    const auto offset =
        static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address) % kSuperblockBytes);
    return offset / 16 * reciprocal < kSuperblockBytes && offset % 16 == 0;
  }
  void return_blocks(Block* block);
  Block* return_own_blocks(Block* block);
  void release(Superblock* superblock);
  void start_hardening();
  void update_region_bounds();
  void after_large_change();
  // page_purger.h
  static bool is_resident(const Superblock* superblock, std::size_t begin);
  void maybe_purge_pages(Superblock* superblock, std::uint32_t before);
  void purge_pages(Superblock* superblock);
  void reuse_purged_pages(Superblock* superblock);
  // heap_remote.h
  [[nodiscard]] bool owns(Superblock* superblock) const;
  bool own_again(Superblock* superblock);
  void become_owner(Superblock* superblock);
  void add_taken(Superblock* superblock, RemoteQueue::Taken taken);
  void disown(Superblock* superblock);
  void collect_remote_frees();
  bool take_arrived(Superblock* superblock, bool mine);
  static void reclaim(Superblock* superblock);
  bool requeue_or_release(Superblock* superblock);
  void set_free_count(Superblock* superblock, std::uint32_t count);
  void free_remote(Superblock* superblock, Block* block);
  HEAPWRIGHT_INLINE RemoteFreeBatch& batch_of(const Superblock* superblock) {
    return batches_[reinterpret_cast<std::uintptr_t>(superblock) / sizeof(Superblock) % kBatches];
  }
  // True: it must go now.
  HEAPWRIGHT_INLINE bool add_to_batch(RemoteFreeBatch& batch, Block* block) {
    set_next(block, batch.first);
    batch.first = block;
    ++batch.count;
    return (batch.bytes += batch.size) >= kMaxBatchBytes;
  }
  void send(RemoteFreeBatch& batch);
  void report(const void* address, Fault fault) const {
    if (on_fault != nullptr) {
      on_fault(address, fault);
    }
  }

  platform::Lock lock_;                                     // see Guard
  std::array<List<Superblock>, Classes::kCount> queues_{};  // superblocks with a block to hand out
  // The superblock of each class that refill() takes blocks from, still queued. Only this heap's thread looks at it and
  // changes it: who brings blocks home leaves it alone (and one superblock for each class is all that can strand there).
  std::array<Superblock*, Classes::kCount> current_{};
  std::size_t cache_bytes_per_class_ = C::kCacheBytesPerClass;
  Pool* pool_;
  std::uint32_t forks_ = 0;  // of a heap whose thread is in another process, the lock may be held for ever
  std::array<RemoteFreeBatch, kBatches> batches_{};
  std::size_t idle_bytes_ = 0;             // in free blocks of superblocks of this heap that are not current
  std::size_t started_ = 0;                // superblocks, since remote frees were last looked for everywhere
  std::size_t drain_at_ = kDrainInterval;  // so many: a part of those that were looked at then
  const void* zeroed_block_ = nullptr;
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<C::kSecure, Quarantine<Block*, 256, block_bytes>, Nothing>
      quarantine_{};
};

}  // namespace heapwright::alloc

#include "heap_allocate.h"
#include "heap_free.h"
#include "heap_hardened.h"
#include "heap_remote.h"
#include "page_purger.h"
