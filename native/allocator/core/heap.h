// The heap of one thread: it serves the thread's malloc and free. It joins a thread cache, the
// superblocks that the thread owns, and batches of blocks that belong to other heaps.
//
// One malloc of at most 32 KiB:
//   1. allocate() looks up the size's list in the thread cache (thread_cache.h) and takes its first
//      block. Done.
//   2. If the list is empty, allocate_slow() finds the size class, and refill() asks
//      OwnedSuperblocks for half a list.
//   3. These blocks come from the current superblock of the class: from its free list, else from
//      its purged pages, else from its remote queue, else they are carved from memory that was
//      never used.
//   4. If the current superblock is full, the heap disowns it and takes the next in the queue of
//      the class, or a new one from the region (region.h).
//   5. If there is no memory, the heap trims itself and tries once more.
//   Larger blocks are spans of superblocks (up to 1 MiB) or mappings: big_blocks.h.
//
// One free of a block that this heap owns:
//   1. free() checks that the address is in the region, and reads the superblock's tag: owner and
//      list.
//   2. The owner is this heap: the block goes to the front of the list. Done.
//   3. If the list is due for its check, flush_full_list() keeps a quarter, the most recently freed
//      blocks, and returns the others to their superblocks.
//   4. A superblock all of whose blocks are free returns to the region. One that is mostly free has
//      its wholly free pages purged (page_purger.h).
//
// One remote free, of a block that another heap owns:
//   1. The tag names another owner. try_free_remote() adds the block to the batch of its superblock
//      (remote_frees.h).
//   2. A batch of 4 KiB is sent: one compare-and-swap links its blocks into the superblock's remote
//      queue (remote_queue.h). Batches are also sent when drain_remote() runs, and when another
//      superblock needs the batch.
//   3. If nobody owns the superblock and a quarter of its blocks are there, this heap becomes its
//      owner.
//   4. If an owner exists but a quarter of the blocks wait, or all that are missing, this thread
//      reclaims them for the owner, under the owner's lock (owned_superblocks.h).
//   5. Otherwise the owner takes them when it needs blocks, or in its next drain_remote().
//
// One thread exit (thread_heaps.h calls on_thread_exit()):
//   1. The cache is flushed: all its blocks return to their superblocks.
//   2. Current superblocks become ordinary ones, so that other threads may reclaim blocks into
//      them.
//   3. drain_remote() sends all batches and collects all remote frees.
//   4. The heap waits, with its partly used superblocks, for the next thread. Blocks freed remotely
//      after that are reclaimed by the freeing thread.
//
// Layout: the cache is the first member, so that it begins where the heap, and the library, begin.
// The fast paths then need no offset.
//
// Invariants:
//   - A heap belongs to one thread. Other threads call only OwnedSuperblocks::reclaim(), which
//     takes the heap's lock.
//   - Each block is in exactly one place: with the program, in a thread cache, in a batch, in a
//     remote queue, in quarantine (hardened builds), in its superblock's free list or on a purged
//     page, or not carved yet.
//   - Locks are taken in this order: a heap's, then the pool's. No thread holds the locks of two
//     heaps, except during a fork.
//   - A heap of a process with one thread needs neither owners nor locks (free_single_threaded()).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "big_blocks.h"
#include "quarantine.h"
#include "remote_frees.h"
#include "statistics.h"
#include "thread_cache.h"

namespace heapwright::alloc {

template <Configuration C>
class Heap {
 public:
  using Cache = ThreadCache<C>;
  using Classes = typename Cache::Classes;

 private:
  Cache cache_;  // the first member: see Layout

 public:
  constexpr explicit Heap(Pool& pool, std::uint32_t number = 0)
      : cache_(pool, owner_tag(number)),
        owned_(pool, owner_tag(number)),
        remote_frees_(pool, owned_),
        big_(pool),
        pool_(&pool) {}

  // The fast path of malloc; nullptr: call allocate_slow().
  HEAPWRIGHT_INLINE void* allocate(std::size_t bytes) {
    Block* const block = cache_.take(bytes);
    return block != nullptr ? hand_out(block, bytes) : nullptr;
  }

  enum class FreeResult : std::uint8_t { kDone, kListFull, kSlow };
  // The fast path of free. After kListFull the caller calls flush_full_list(), after kSlow
  // try_free_remote() or free_slow(). `freed_as`: what the caller says about the block; only
  // hardened builds compare it.
  HEAPWRIGHT_INLINE FreeResult free(void* address, FreedAs freed_as = {}) {
    const std::size_t offset = cache_.offset_in_region(address);
    if (offset >= cache_.limit()) [[unlikely]] {
      return FreeResult::kSlow;
    }
    const std::uint32_t tag = cache_.tag_at(offset) ^ cache_.owner();
    if (tag >= 1U << kOwnerShift) [[unlikely]] {
      return FreeResult::kSlow;
    }
    return free_to_list(tag, address, freed_as);
  }
  // The same for the only heap of a process with one thread: every block is its own.
  HEAPWRIGHT_INLINE FreeResult free_single_threaded(void* address, FreedAs freed_as = {}) {
    const std::size_t offset = cache_.offset_in_region(address);
    if (offset >= cache_.limit()) [[unlikely]] {
      return FreeResult::kSlow;
    }
    return free_to_list(cache_.tag_at(offset), address, freed_as);
  }
  // Frees another heap's block after free() returned kSlow; returns false if it is none. A short
  // cut before free_slow().
  HEAPWRIGHT_INLINE bool try_free_remote(void* address) {
    const std::size_t offset = cache_.offset_in_region(address);
    if (C::kSecure || offset >= cache_.limit() || list_offset(cache_.tag_at(offset)) == 0) {
      return false;
    }
    remote_frees_.free(superblock_of(address), static_cast<Block*>(address));
    return true;
  }
  // Returns the size of a block with a size class; 0: call usable().
  [[nodiscard]] HEAPWRIGHT_INLINE std::size_t class_size(const void* address) const {
    const std::size_t offset = cache_.offset_in_region(address);
    if (C::kSecure || offset >= cache_.limit()) [[unlikely]] {  // of a hardened block only the mark tells
      return 0;
    }
    return kUsableBytes<C>[class_of_tag(cache_.tag_at(offset))];
  }
  // Returns whether realloc to `bytes` leaves a block of `usable` bytes where it is: it is large
  // enough and at least half used.
  static HEAPWRIGHT_INLINE bool fits_in_place(std::size_t usable, std::size_t bytes) {
    return bytes <= usable && (bytes >= usable / 2 || usable <= Classes::kGranule);
  }

  // Allocates a block of any size; nullptr: out of memory. `zero`: memory for which is_zero() holds
  // is preferred.
  void* allocate_slow(std::size_t bytes, bool zero = false);
  // Allocates at a multiple of `alignment`, a power of two.
  void* allocate_aligned(std::size_t bytes, std::size_t alignment);
  // Returns whether the block that allocate_slow() just returned reads as zero already.
  [[nodiscard]] bool is_zero(const void* block) const { return zeroed_block_ == block; }
  // Flushes the list that free() pushed `address` to, after free() returned kListFull.
  void flush_full_list(void* address);
  // Frees any address. Returns false if no block begins there; `fault` then says what is wrong.
  bool free_slow(void* address, Fault& fault, FreedAs freed_as = {});
  // Returns the usable bytes of a block, or 0 if no block begins at `address`.
  [[nodiscard]] std::size_t usable(const void* address) const;
  // Hardened builds: records that one of C++'s operators allocated the block.
  void set_origin(void* address, Origin origin) { alloc::set_origin(*pool_, address, origin); }
  // Resizes a block in place, or a large one by its mapping, which may move; nullptr: the caller
  // copies.
  void* resize(void* address, std::size_t bytes);

  // Changes how many bytes each list of the thread cache may hold. It flushes the cache first.
  void set_cache_bytes(std::size_t bytes) {
    flush_cache();
    cache_.set_bytes_per_class(bytes);
  }
  // Returns all cached and quarantined blocks to their superblocks; blocks of other heaps go to
  // batches.
  void flush_cache();
  // Sends all batches and collects all remote frees of this heap's superblocks.
  void drain_remote();
  // Flushes everything when the heap's thread ends: see 'One thread exit'.
  void on_thread_exit() {
    flush_cache();
    owned_.on_thread_exit();
    drain_remote();
  }
  // Returns all free memory to the kernel. Returns whether there was any.
  bool trim() {
    flush_cache();
    drain_remote();
    return big_.trim();
  }
  // Takes over everything from another heap of this thread. The other heap's fast paths fail from
  // then on.
  void take_over(Heap& other);
  // Called before the process gets a second thread: from then on the pool is locked.
  static void become_threaded(Pool& pool) { OwnedSuperblocks<C>::become_threaded(pool); }
  // A fork keeps this lock (platform::Forking).
  platform::Lock& lock() { return owned_.lock(); }
  // Declares that this heap is one of those that the process has since its last fork.
  void keep_in_child() { owned_.keep_in_child(); }

  // Counts memory. It cannot look into the caches of other heaps: their blocks count as live.
  [[nodiscard]] Statistics statistics() const;
  [[nodiscard]] Region& region() const { return pool_->region; }

  // The next in the list of heaps whose threads have ended.
  Heap* next_idle = nullptr;

 private:
  HEAPWRIGHT_INLINE FreeResult free_to_list(std::uint32_t tag, void* address, FreedAs freed_as) {
    if constexpr (C::kSecure) {
      if (tag != 0) {
        quarantine_block(address, freed_as);
      }
      return tag != 0 ? FreeResult::kDone : FreeResult::kSlow;
    }
    return cache_.put(tag, address) ? FreeResult::kDone : FreeResult::kListFull;
  }
  HEAPWRIGHT_INLINE void* hand_out(Block* block, std::size_t bytes) const {
    if constexpr (C::kSecure) {
      prepare_block(*pool_, block, bytes);
    }
    return block;
  }
  bool refill(std::size_t class_number);
  void* allocate_class(std::size_t class_number, std::size_t bytes);
  void* allocate_span(std::size_t bytes);
  void* allocate_large(std::size_t bytes, std::size_t alignment, bool zero = false);
  void return_blocks(Block* block);
  void quarantine_block(void* address, FreedAs freed_as);
  void reuse_block(Block* block);

  OwnedSuperblocks<C> owned_;
  RemoteFrees<C> remote_frees_;
  BigBlocks<C> big_;
  Pool* pool_;
  const void* zeroed_block_ = nullptr;  // see is_zero()
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<C::kSecure, Quarantine<Block*, 256, block_bytes>, Nothing>
      quarantine_{};
};

}  // namespace heapwright::alloc
