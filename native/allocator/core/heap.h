// Joins the parts of a heap. One thread allocates from it and frees to it. It consists of
//
//   a thread cache           one free list for each size class (thread_cache.h)
//   a depot                  whole free lists in reserve, for each size class a stack, and freed spans
//                            (depot.h)
//   owned superblocks        aligned chunks of 64 KiB, each with blocks of one size class
//                            (owned_superblocks.h); those with a block to hand out wait in one
//                            queue for each class, and its first is the current superblock
//   freed by others          blocks above 4 KiB that other threads have freed, for each size class a
//                            list (freed_by_others.h)
//   remote-free batches      freed blocks of superblocks that other heaps own (remote_frees.h)
//   big blocks               above 32 KiB: spans of superblocks up to 1 MiB, else mostly mappings
//                            (big_blocks.h)
//
// All heaps share one pool (pool.h): the region, a range of addresses that all superblocks come
// from, and lists under one lock. Heap 0 is the only one while the process has one thread.
//
// One malloc of at most 32 KiB:
//   1. allocate() looks up the size's list in the thread cache and takes its first block. Done.
//   2. If the list is empty, allocate_slow() finds the size class, and refill() takes the latest
//      list of the depot. If there is none, it takes the blocks that other threads have freed. If
//      there are none, it asks OwnedSuperblocks for blocks: a superblock's whole free list, or (in
//      hardened builds always) half as many as the list may hold.
//   3. These blocks come from the current superblock of the class: from its free list; else from a
//      purged page, whose memory the kernel has and whose blocks are linked again; else from its
//      remote queue; else they are carved from memory that was never used.
//   4. If the current superblock has no block left, the heap goes on with the next in the queue of
//      the class, or with one that another heap does not use now, or with a new one from the region.
//      With several threads it disowns the old one: that has no owner until enough of its blocks are
//      free. Its tag still names this heap.
//   5. If there is no memory, the heap calls trim() and tries once more.
//
// One free of a block whose superblock's tag names this heap:
//   1. free() checks that the address is in the region, and reads the tag: owner and list.
//   2. The block goes to the front of the list. Done. (Hardened builds: into quarantine first, see
//      quarantine.h.)
//   3. Each list is checked after as many frees as it may hold blocks. If it is not short then,
//      flush_full_list() moves it to the depot, whole and uncounted.
//   4. If the depot is full (depot_limit.h), the list's blocks return to superblocks of this heap,
//      or, where a superblock was disowned meanwhile, to a batch. All lists return before the heap
//      obtains new memory while the depot is large. Lists of small blocks in random order return as
//      soon as they fill the processor's cache, and become free bits (free_bits.h). Another thread
//      empties the depot of a thread that sleeps, when it needs memory, trims, or finds that the
//      depot holds too much (heap_depot.h).
//   5. A superblock all of whose blocks are free returns to the region. page_purger.h purges wholly
//      free pages of the others.
//
// One remote free, of a block whose superblock's tag names another heap:
//   1. free() adds the block to a batch. There is a small table of batches, each for one
//      superblock. Where the table has no batch of the block's superblock, free_remote_slow() begins
//      one. But a block above 4 KiB goes to a list of the heap that allocated it, while these lists are
//      open and not full, and is handed out again from there.
//   2. A batch is sent when it holds 8 KiB of blocks, when another superblock needs its entry in
//      the table, and in drain_remote(). Sending links its blocks into the superblock's remote
//      queue by one compare-and-swap (remote_queue.h).
//   3. If no heap owns the superblock and a quarter of its blocks are free by then, this heap
//      becomes its owner.
//   4. If it has an owner, and a quarter of its blocks or all of its allocated ones wait in the
//      queue, this thread reclaims them: under the owner's lock, it moves them to the superblock's
//      free list. It never does so with a current superblock, which its owner uses without the
//      lock.
//   5. Otherwise the owner takes them when it needs blocks, or in its next drain_remote(), which
//      allocate_slow() calls now and then.
//
// One malloc and one free of a span:
//   1. allocate_freed_span() takes a freed span of the same length: from the depot, or from the
//      region while the process has one thread. Otherwise allocate_span_in_region() takes one.
//   2. The tag of a span names no list, so free() does not return kDone. finish_free_fast() puts the
//      span back where 1. takes it from. If the depot may not take it, keep_span() decides.
//
// One thread exit (ThreadHeaps calls on_thread_exit()):
//   1. The cache, the depot and the lists of blocks freed by others are flushed: all their blocks
//      return to their superblocks, or to batches, and spans to the region. But the cache and the
//      lists in the depot of a thread that did little may stay for the next thread (thread_heaps.h).
//   2. Current superblocks become ordinary ones, so that other threads may reclaim blocks into
//      them.
//   3. drain_remote() sends all batches and collects all remote frees.
//   4. The heap keeps its partly used superblocks until a new thread takes the heap. Blocks freed
//      remotely meanwhile are reclaimed by the freeing thread.
//
// Layout: the cache is the first member, so it begins at the heap's address. The library's object
// begins with heap 0. So the fast paths of a process with one thread need no offset.
//
// Invariants:
//   - At most one thread uses a heap. Other threads may only send to its superblocks' remote
//     queues, add to and take its lists of blocks freed by others, take the shared lists and the spans
//     of its depot, and, under its lock, reclaim and return blocks for it and take superblocks.
//   - Each block of a size class is in exactly one place: with the program, in a thread cache, in a
//     depot, in a list of blocks freed by others, in a batch, in a remote queue, in quarantine
//     (hardened builds, C::kSecure), in its superblock's free list, on a purged page, or not carved
//     yet.
//   - Locks are taken in this order: a heap's, then the pool's. No thread holds the locks of two
//     heaps, except during a fork.
//   - In a process with one thread all tags name heap 0, whose number is 0, and no lock is taken
//     (free_single_threaded()). become_threaded() ends that; the tags stay valid.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "big_blocks.h"
#include "depot.h"
#include "depot_limit.h"
#include "inlining.h"
#include "quarantine.h"
#include "remote_frees.h"
#include "span_limit.h"
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
        depot_(pool, owned_),
        remote_frees_(pool, owned_),
        big_(pool),
        pool_(&pool) {}

  // The fast path of malloc; nullptr: call allocate_slow().
  HEAPWRIGHT_INLINE void* allocate(std::size_t bytes) {
    Block* const block = cache_.take(bytes);
    return block != nullptr ? hand_out(block, bytes) : nullptr;
  }

  // The same for all sizes with a class, with a few instructions more.
  void* allocate_class_from_list(std::size_t bytes) {
    if (bytes > kLargestClassBytes - Cache::kMarkBytes) {
      return nullptr;
    }
    Block* const block = cache_.take_from(Classes::of(bytes + Cache::kMarkBytes));
    return block != nullptr ? hand_out(block, bytes) : nullptr;
  }

  // The fast path of free, of any address. Where it does not return kDone, call finish_free(). It
  // does not notice interior pointers or double frees. `freed_as`: size, alignment and operator
  // that the caller names; hardened builds compare them with the block's mark.
  HEAPWRIGHT_INLINE FreeResult free(void* address, FreedAs freed_as = {}) {
    const std::size_t offset = cache_.offset_in_region(address);
    if (offset >= cache_.limit()) [[unlikely]] {
      return FreeResult::kSlow;
    }
    // If the tag names this heap, the exclusive or leaves the list's offset; else it is larger.
    const std::uint32_t list = cache_.tag_at(offset) ^ cache_.owner();
    if (list >= 1U << kOwnerShift) [[unlikely]] {
      return free_remote(Region::tag_index(offset), address);
    }
    return free_to_list(list, address, freed_as);
  }
  // The same for the only heap of a process with one thread: every block is its own.
  HEAPWRIGHT_INLINE FreeResult free_single_threaded(void* address, FreedAs freed_as = {}) {
    const std::size_t offset = cache_.offset_in_region(address);
    if (offset >= cache_.limit()) [[unlikely]] {
      return FreeResult::kSlow;
    }
    return free_to_list(cache_.tag_at(offset), address, freed_as);
  }
  // Whether the process may have several threads.
  [[nodiscard]] HEAPWRIGHT_INLINE bool is_threaded() const {
    return !C::kStartsSingleThreaded || pool_->threaded;
  }
  // Allocates a freed span of the same length, without a lock. Returns nullptr if there is none.
  HEAPWRIGHT_INLINE void* allocate_freed_span(std::size_t bytes);
  // Finishes a free() in the frequent cases: a span that the depot or the region takes, a block
  // without a batch, a full list. Otherwise does nothing and returns false.
  HEAPWRIGHT_INLINE bool finish_free_fast(FreeResult freed, void* address);
  // Returns the size of a block with a size class; 0: call usable().
  [[nodiscard]] HEAPWRIGHT_INLINE std::size_t class_size(const void* address) const {
    const std::size_t offset = cache_.offset_in_region(address);
    if (C::kSecure || offset >= cache_.limit()) [[unlikely]] {  // a hardened block's size is in its mark
      return 0;
    }
    return kUsableBytes<C>[class_of_tag(cache_.tag_at(offset))];
  }
  // Returns whether realloc to `bytes` leaves a block of `usable` bytes where it is: it is large
  // enough, and at least half used or of the smallest class.
  static HEAPWRIGHT_INLINE bool fits_in_place(std::size_t usable, std::size_t bytes) {
    return bytes <= usable && (bytes >= usable / 2 || usable <= Classes::kGranule);
  }

  // Allocates a block of any size; nullptr: out of memory.
  void* allocate_slow(std::size_t bytes);
  // Allocates at a multiple of `alignment`, a power of two.
  void* allocate_aligned(std::size_t bytes, std::size_t alignment);
  // Returns whether the block that allocate_slow() just returned reads as zero already.
  [[nodiscard]] bool is_zero(const void* block) const { return zeroed_block_ == block; }
  // Finishes a free(). Returns false if no block begins at `address`; `fault` is then the
  // reason.
  bool finish_free(FreeResult freed, void* address, Fault& fault, FreedAs freed_as = {}) {
    if (freed == FreeResult::kListFull) {
      flush_full_list(address);
    } else if (freed == FreeResult::kBatchFull) {
      remote_frees_.send_batch_of(superblock_of(address));
    } else if (freed == FreeResult::kNoBatch) {
      return free_without_batch(address, fault, freed_as);
    } else if (freed == FreeResult::kSlow) {
      return free_slow(address, fault, freed_as);
    }
    return true;
  }
  // Frees any address. Returns false if no block begins there; `fault` is then the reason.
  bool free_slow(void* address, Fault& fault, FreedAs freed_as = {});
  // Returns the usable bytes of a block, or 0 if no block begins at `address`.
  [[nodiscard]] std::size_t usable(const void* address) const;
  // Hardened builds: records in the block's mark that operator new or new[] allocated it. Others do
  // not call it.
  void set_origin(void* address, Origin origin) { alloc::set_origin(*pool_, address, origin); }
  // Resizes a block, and returns its address. It stays in place, or, with a mapping of its own, the
  // kernel may move it. nullptr: not possible; the caller allocates, copies and frees.
  void* resize(void* address, std::size_t bytes);

  // Changes how many bytes each list of the thread cache may hold. It flushes the cache first.
  void set_cache_bytes(std::size_t bytes) {
    flush_cache();
    cache_.set_bytes_per_class(bytes);
  }
  // Returns all cached and quarantined blocks to their superblocks; blocks of other heaps go to
  // batches.
  HEAPWRIGHT_COLD void flush_cache();
  // Sends all batches and collects all remote frees of this heap's superblocks.
  void drain_remote();
  // What thread cache and depot would keep in use for the next thread if this thread ended now, in
  // bytes. SIZE_MAX: they must be flushed. The thread has done much more than a flush costs, or a list
  // has a cycle.
  [[nodiscard]] HEAPWRIGHT_COLD std::size_t bytes_to_leave();
  // Flushes everything when the heap's thread ends; if `leaves_lists`, only spans and blocks that
  // others have freed: see 'One thread exit'.
  void on_thread_exit(bool leaves_lists = false) {
    FreedByOthers<C>& freed = owned_.freed_by_others();
    freed.close();
    if (!leaves_lists) {
      flush_cache();
    } else {
      big_.give_spans(depot_.take_all_own_spans());
      freed.take_all([this](BlockChain list) { return_list(list); });
    }
    owned_.on_thread_exit();
    drain_remote();
    moved_lists_ = 0;
  }
  // Gives all free memory of this heap and of the pool to the kernel; returns whether there was
  // any. `pages`: also the free pages of superblocks that are in use.
  bool trim(bool pages = false) {
    bool any = false;
    flush_left_lists();
    flush_cache();
    reclaim_spans();
    pool_->each_depot([this](DepotRecord& other) { empty_depot_of(other); });
    drain_remote();
    if (pages) {
      any = owned_.purge_pages();
    }
    return big_.trim() || any;
  }
  // Takes over everything from another heap of this thread, when the process gets its second thread
  // or a thread a heap of its own. From then on the other heap's allocate() returns nullptr and its
  // free() kSlow.
  HEAPWRIGHT_COLD void take_over(Heap& other);
  // Called before the process gets a second thread: from then on heaps and the pool take locks.
  static void become_threaded(Pool& pool) { OwnedSuperblocks<C>::become_threaded(pool); }
  // A fork takes this lock before and releases it after, in parent and child (platform::Forking).
  platform::Lock& lock() { return owned_.lock(); }
  // In the child of a fork: the heap's thread exists in this process. No thread reclaims for
  // heaps that are not declared, because their locks may be held for ever.
  void keep_in_child() {
    owned_.keep_in_child();
    owned_.freed_by_others().count_again();
    depot_.count_again();
  }

  // Counts memory. It cannot look into other heaps: blocks in their caches count as live.
  [[nodiscard]] HEAPWRIGHT_COLD Statistics statistics() const;
  [[nodiscard]] Region& region() const { return pool_->region; }

  // Tells a reader in another process where the fields of this heap are.
  constexpr void describe(HeapLayout& layout) const;

  // The next in ThreadHeaps' list of heaps without a thread; ThreadHeaps' lock guards it.
  Heap* next_idle = nullptr;
  std::size_t left_bytes = 0;  // what ThreadHeaps counts for the lists that an ended thread has left
  // The heap that ThreadHeaps made before this one. It never changes.
  Heap* next_created = nullptr;

 private:
  // `list`: offset of the list. Offset 0 is no class; put() then always asks for a check of the
  // list.
  HEAPWRIGHT_INLINE FreeResult free_to_list(std::uint32_t list, void* address, FreedAs freed_as) {
    if constexpr (C::kSecure) {
      if (list != 0) {
        quarantine_block(address, freed_as);
      }
      return list != 0 ? FreeResult::kDone : FreeResult::kSlow;
    }
    return cache_.put(list, address) ? FreeResult::kDone : FreeResult::kListFull;
  }
  // Adds a block whose tag names another heap to the batch of its superblock. Hardened builds check
  // it first, in free_slow().
  HEAPWRIGHT_INLINE FreeResult free_remote(std::ptrdiff_t tag_index, void* address) {
    return C::kSecure ? FreeResult::kSlow : remote_frees_.add(tag_index, static_cast<Block*>(address));
  }
  HEAPWRIGHT_INLINE void* hand_out(Block* block, std::size_t bytes) const {
    if constexpr (C::kSecure) {
      prepare_block(*pool_, block, bytes);
    }
    return block;
  }
  // Checks the list that free() has put `address` on. If the address has no size class (a span, a
  // wrong pointer), its list is list 0; then it frees the span or reports.
  void flush_full_list(void* address);
  void flush_left_lists() const {
    if (pool_->flush_left_lists != nullptr) {
      pool_->flush_left_lists();
    }
  }
  bool refill(std::size_t class_number);
  bool take_freed_by_others(std::size_t class_number);
  bool free_without_batch(void* address, Fault& fault, FreedAs freed_as);
  void free_remote_slow(std::uint32_t tag, Block* block);
  bool return_to_allocating_heap(std::size_t class_number, Block* block);
  void* allocate_class(std::size_t class_number, std::size_t bytes);
  void* allocate_span(std::size_t bytes);
  bool free_span(void* address, Fault& fault, FreedAs freed_as);
  [[gnu::noinline]] void* allocate_span_in_region(std::size_t bytes);
  void* resize_big(void* address, std::size_t bytes, Origin origin);
  Superblock* pop_span(std::size_t length);
  [[gnu::noinline]] void keep_or_give_span(Superblock* span);
  bool keep_span(Superblock* span);
  void set_span_bounds();
  void bias_depot();
  bool reclaim_spans(DepotRecord* only = nullptr);
  void decide_span_limit();
  [[nodiscard]] bool needs_new_memory(std::size_t bytes) const {
    const Pool::Guard guard(*pool_);
    return pool_->region.needs_new_memory(bytes);
  }
  void* allocate_large(std::size_t bytes, std::size_t alignment);
  void store_list(std::size_t class_number, BlockChain list);
  bool make_room();
  HEAPWRIGHT_COLD void return_idle_memory();
  void purge_still_superblocks();
  void return_still_lists();
  void shrink_idle_depot();
  void empty_depot();
  void empty_depot(std::size_t class_number);
  void empty_depot_of(DepotRecord& record);
  HEAPWRIGHT_COLD void empty_own_or_idle_depot(std::size_t bytes);
  // Whether there may be a depot for empty_own_or_idle_depot(). Needs no lock.
  [[nodiscard]] bool may_empty_depots() const {
    return pool_->has_depots() || depot_.bytes() > DepotLimit<C>::kMinBytes;
  }
  void return_list(BlockChain list) { return_list(list, owned_, OwnedSuperblocks<C>::Returned::kInRuns); }
  void return_list(BlockChain list, OwnedSuperblocks<C>& owner, typename OwnedSuperblocks<C>::Returned how);
  // Estimates the length of a list, which may be half as long as its bound.
  static std::int64_t estimated_count(BlockChain list) { return static_cast<std::int64_t>(list.count / 2); }
  void quarantine_block(void* address, FreedAs freed_as);
  void reuse_block(Block* block);

  // A list is checked when it moves to the depot: the first kListsChecked ones, then one in
  // kListsPerCheck. A double free makes a cycle, which stays in the list of the class until a check
  // finds it.
  static constexpr std::uint32_t kListsChecked = 64;
  static constexpr std::uint32_t kListsPerCheck = 16;
  static constexpr std::uint32_t kListsPerDecision = 64;  // of the depot's limit, if that may fall
  static constexpr std::uint32_t kListsPerLook = 64;      // at memory that is not needed any more
  static constexpr std::uint32_t kSpansPerLook = 64;      // the same, of freed spans
  static constexpr std::uint32_t kTakesPerLook = 64;      // from FreedByOthers
  static constexpr int kMaxHalvings = 8;                  // of a depot at a time
  static constexpr std::uint32_t kFewLists = 256;         // that a thread has moved, see bytes_to_leave()
  static constexpr std::uint64_t kIdleMs = 100;           // without a move, after which a depot is idle
  // Small blocks in random order must not stay in random order for ever, once they fill the
  // processor's second-level cache: then they return to their superblocks, which hand out
  // neighbours again. If other threads free such blocks, they return at once, because links lead
  // from a cache line of another processor to the next. Small: kMinPurgedBytes.
  static constexpr std::size_t kMaxScatteredDepot = 1024 * 1024;
  // For each class: the blocks that this heap has obtained for allocations, less those in its
  // depot. The depot accepts at most this number and two lists more. A thread that only frees
  // blocks of others has no use for a depot, and would keep the superblocks of its blocks from
  // becoming empty.
  std::array<std::int64_t, Classes::kCount> obtained_{};
  std::array<std::int64_t, Classes::kCount> seen_obtained_{};  // when return_still_lists() looked at it
  std::uint64_t looked_at_lists_ms_ = 0;
  std::uint32_t stored_lists_ = 0;
  std::uint32_t seen_lists_ = 0;   // that frees have filled, those that stayed in the thread cache included
  std::uint32_t moved_lists_ = 0;  // these and refills, of the present thread
  std::uint32_t seen_spans_ = 0;   // that were freed
  std::uint32_t takes_from_others_ = 0;            // refills that looked for blocks freed by others
  std::array<bool, Classes::kCount> scattered_{};  // for each class: its lists return to the superblocks
  mutable OwnedSuperblocks<C> owned_;  // statistics() takes and puts back the blocks freed by others
  mutable Depot<C> depot_;             // statistics() takes and puts back the shared stacks
  DepotLimit<C> depot_limit_;
  SpanLimit span_limit_;
  RemoteFrees<C> remote_frees_;
  BigBlocks<C> big_;
  Pool* pool_;
  const void* zeroed_block_ = nullptr;  // see is_zero()
  struct Nothing {};
  [[no_unique_address]] std::conditional_t<C::kSecure, Quarantine<Block*, 256, block_bytes>, Nothing>
      quarantine_{};
};

}  // namespace heapwright::alloc
