// Manages the superblocks that a heap owns: refills the thread cache and takes freed blocks back.
//
//     queue of each class: the owned superblocks with a block to hand out;
//     `current` is the one that refills take from
//
//     refill ◄── current superblock ◄── first in the queue ◄── another heap's, or a new one
//     return ──► its superblock's free list ──(all blocks free)──► the region
//
// Ownership. The superblock's remote queue (remote_queue.h) decides who owns it. The owner need not
// read that queue: a new owner sets `owner` first and `queued` second, and the owner
// clears `queued` before it gives the superblock up. So if a heap reads `queued` as set (acquire)
// and then `owner` as itself, it is the owner, and no other thread can change either field. The
// superblock's tag is only a hint.
//
// A full superblock has no owner. When its last block is handed out, its owner disowns it. So a
// thread that sleeps strands no memory: any thread that frees enough of the blocks becomes the
// owner.
//
// A superblock with free blocks that its owner does not allocate from may pass to a heap that needs
// such blocks (superblocks_from_others.h).
//
// Reclaiming. An idle owner must not strand memory either. When a quarter of a superblock's blocks
// wait in its remote queue, or all blocks that the owner does not have, the freeing thread reclaims
// them: it moves them to the free list in the owner's name, under the owner's lock. Two threads may
// return the last blocks at the same time. One writes the queue and then reads `free_count`; the
// other writes `free_count` and then reads the queue. All four accesses are sequentially
// consistent, so at least one of the threads sees all blocks. Likewise, a new owner sets `queued`
// and then reads the queue: a freeing thread that found no owner has written the queue before.
// Small blocks that return in random order have one fence for many superblocks instead
// (check_nearly_free()).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "block_marks.h"
#include "carving.h"
#include "free_bits.h"
#include "freed_by_others.h"
#include "inlining.h"
#include "remote_queue.h"
#include "superblock_queues.h"

namespace heapwright::alloc {

template <Configuration C>
class OwnedSuperblocks {
 public:
  using Classes = SizeClasses<C::kClassesPerDoubling>;

  constexpr OwnedSuperblocks(Pool& pool, std::uint32_t owner) : owner_(owner), pool_(&pool), queues_(pool) {}

  // Takes linked blocks of a class: the whole free list of a superblock, or else (in hardened builds
  // always) at most `batch`; none: out of memory. The region may have grown: call
  // ThreadCache::update_region_bounds(). It takes no lock while the current superblock has blocks: a locked instruction waits until the
  // processor's cache has received all that the program wrote before. `may_grow`: otherwise it also
  // takes none if the region would need new memory. Implemented in take_blocks.h.
  BlockChain refill(std::size_t class_number, std::size_t batch, bool may_grow = true);

  // How linked blocks of one class return.
  enum class Returned : std::uint8_t {
    kInRuns,     // neighbours in the list often belong to one superblock
    kScattered,  // seldom; and the blocks are smaller than those of which pages are purged
    kForOwner,   // another thread returns them in runs for this heap
  };
  // Puts linked blocks back into their superblocks. Returns those that belong to superblocks of
  // other heaps, linked; with kForOwner also those of current superblocks.
  Block* return_blocks(BlockChain list, Returned how = Returned::kInRuns);
  // Sends a batch to its superblock. If no heap owns the superblock and enough blocks are there,
  // this heap becomes the owner; if its owner should have them now, reclaims them for the owner.
  void send(const RemoteFreeBatch& batch);
  // Moves all blocks from the remote queues of this heap's superblocks to their free lists.
  void collect_remote_frees();
  // Whether enough superblocks have been started since the last collect_remote_frees() to make it
  // due again; if so, begins to count anew.
  bool collection_due() {
    if (started_ < collect_at_) {
      return false;
    }
    started_ = 0;
    return true;
  }

  // How many superblocks refills have used up since after_flush().
  [[nodiscard]] std::size_t used_up() const { return used_up_; }
  // Must be called when all cached blocks have come back: purges pages of the superblocks that wait
  // for it (page_purger.h).
  void after_flush() {
    used_up_ = 0;
    const Guard guard(*this);
    queues_.purger().purge_waiting();
  }

  // Makes current superblocks ordinary ones, into which other threads may reclaim blocks. The next
  // collect_remote_frees() takes the blocks of threads that saw one of them as current.
  void on_thread_exit();
  // Purges the wholly free pages of this heap's superblocks. Returns whether there were any.
  bool purge_pages();
  // Purges the wholly free pages of a superblock that nobody uses (idle_memory.h). `now`:
  // milliseconds.
  static bool purge_if_still(Superblock* superblock, std::uint64_t now);
  // Takes over all superblocks of another heap of this thread.
  HEAPWRIGHT_COLD void take_over(OwnedSuperblocks& other);
  // Called before the process gets a second thread: from then on, full superblocks have no owner.
  HEAPWRIGHT_COLD static void become_threaded(Pool& pool);

  // A fork keeps this lock (platform::Forking).
  platform::Lock& lock() { return lock_; }
  // Blocks that other threads have freed for this heap.
  constexpr FreedByOthers<C>& freed_by_others() { return freed_by_others_; }
  [[nodiscard]] constexpr const FreedByOthers<C>& freed_by_others() const { return freed_by_others_; }
  // Declares that this heap's thread exists in this process since its last fork.
  void keep_in_child() {
    forks_ = pool_->forks;
    looked_at_ = nullptr;
  }
  [[nodiscard]] Pool& pool() const { return *pool_; }
  [[nodiscard]] const PagePurger<C>& purger() const { return queues_.purger(); }

 private:
  static constexpr std::uint32_t kReclaimDivisor = 4;     // a quarter of a superblock's blocks
  static constexpr std::size_t kMinCollectInterval = 32;  // superblocks started
  static constexpr std::size_t kHeapsPerLook = 8;         // see take_from_another_heap()
  static constexpr int kSuperblocksPerLook = 8;

  // Held while a heap's superblocks change: by its thread, or by a thread that reclaims blocks for
  // it. No thread holds two of them. A process with one thread needs none.
  class Guard {
   public:
    explicit Guard(OwnedSuperblocks& heap)
        : heap_(heap), held_(heap.pool_->threaded && platform::may_have_threads(true)) {
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
    OwnedSuperblocks& heap_;
    bool held_;
  };

  // How many remotely freed blocks of a superblock are enough to become its owner, or to reclaim
  // them.
  static std::uint32_t reclaim_threshold(const Superblock* superblock) {
    return std::max(superblock->capacity / kReclaimDivisor, 1U);
  }
  // Says up to how many free blocks return_blocks() may put a block back without further checks:
  // the superblock is queued, not current, and far from being free. 0: never. A heap that reads a
  // limit other than 0 and then `owner` as itself is the owner: a new owner sets `owner` first, and
  // the owner sets the limit to 0 before it gives the superblock up. `carved` changes only while a
  // superblock is current.
  static void set_quick_limit(Superblock* superblock, std::uint32_t limit) {
    __atomic_store_n(&superblock->quick_limit, limit, __ATOMIC_RELEASE);
  }
  static void allow_quick_returns(Superblock* superblock, bool threaded) {
    const std::uint32_t reserve = (threaded ? reclaim_threshold(superblock) : 0) + 1;
    set_quick_limit(superblock, superblock->carved > reserve ? superblock->carved - reserve : 0);
  }
  [[nodiscard]] bool owns(Superblock* superblock) const;
  bool own_again(Superblock* superblock);
  void become_owner(Superblock* superblock);
  void disown(Superblock* superblock);
  void add_taken(Superblock* superblock, RemoteQueue::Taken taken);
  bool take_arrived(Superblock* superblock, bool new_owner);
  static void reclaim(Superblock* superblock);
  // Superblocks of which all but a quarter of the blocks are free.
  struct NearlyFree {
    std::array<Superblock*, 24> superblocks;
    std::size_t count = 0;
  };
  template <bool kThreaded>
  Block* return_scattered(BlockChain list);
  bool drop_if_cyclic(BlockChain list) const;
  void check_nearly_free(NearlyFree& nearly_free);
  Block* return_run(Superblock* superblock, Block* block, Block*& remote, bool for_owner);
  static std::uintptr_t superblock_number(const Block* block) {
    return reinterpret_cast<std::uintptr_t>(block) >> kSuperblockShift;
  }
  bool requeue_or_release(Superblock* superblock);
  void release(Superblock* superblock);
  BlockChain take_blocks(Superblock* superblock, std::size_t batch);
  BlockChain take_from_queue(std::size_t class_number, std::size_t batch, Superblock* added);
  Superblock* start_superblock(std::size_t class_number, bool may_grow);
  Superblock* take_from_another_heap(std::size_t class_number);
  Superblock* give_away(std::size_t class_number, std::uint64_t now);

  platform::Lock lock_;
  std::uint32_t owner_;  // owner_tag() of the heap
  // If it differs from the pool's, the heap's thread is in another process and lock_ may be held
  // for ever.
  std::uint32_t forks_ = 0;
  HeapRecord record_;
  const HeapRecord* looked_at_ = nullptr;  // the last in take_from_another_heap()
  Pool* pool_;
  SuperblockQueues<C> queues_;
  std::size_t used_up_ = 0;                       // superblocks, see used_up()
  std::size_t started_ = 0;                       // superblocks, since collect_remote_frees() was last due
  std::size_t collect_at_ = kMinCollectInterval;  // a quarter of those that it looked at the last time
  FreedByOthers<C> freed_by_others_;
};

template <Configuration C>
void OwnedSuperblocks<C>::send(const RemoteFreeBatch& batch) {
  Superblock* const superblock = batch.superblock;
  const std::uint32_t threshold = reclaim_threshold(superblock);
  RemoteQueue::Taken taken;
  const auto link = [this](Block* last, Block* next) { set_next<C>(*pool_, last, next); };
  if (record_.forks != pool_->forks + 1) [[unlikely]] {
    const Pool::Guard guard(*pool_);
    pool_->join(record_, this);
  }
  store_shared(record_.sends, true);  // before the push, which lets others release the superblock
  const bool became_owner =
      RemoteQueue::of(superblock)
          .push(superblock, batch.first, batch.last, batch.count(), threshold, link, taken);
  const std::uint32_t arrived = batch.count() + taken.count;
  if (became_owner) {
    const Guard guard(*this);
    superblock->free = batch.first;
    queues_.set_free_count(superblock, arrived);
    requeue_or_release(superblock);
  } else if (pool_->region.contains(superblock) &&
             !__atomic_load_n(&superblock->current, __ATOMIC_SEQ_CST) &&  // else the lock would be in vain
             (arrived >= threshold || arrived + __atomic_load_n(&superblock->free_count, __ATOMIC_SEQ_CST) >=
                                          __atomic_load_n(&superblock->carved, __ATOMIC_RELAXED))) {
    reclaim(superblock);
  }
  __atomic_store_n(&record_.sends, false, __ATOMIC_RELEASE);
}

// Moves a superblock's remotely freed blocks to its free list on behalf of its owner. Other threads
// may have put it to any other use by now. It is safe to change only if its owner, whose lock is
// held, still owns it.
template <Configuration C>
void OwnedSuperblocks<C>::reclaim(Superblock* superblock) {
  auto* const owner = static_cast<OwnedSuperblocks*>(__atomic_load_n(&superblock->owner, __ATOMIC_SEQ_CST));
  if (owner->forks_ != owner->pool_->forks) {
    return;
  }
  const Guard guard(*owner);
  if (owner->owns(superblock) && !load_shared(superblock->current)) {
    owner->add_taken(superblock, RemoteQueue::of(superblock).take(superblock));
    owner->requeue_or_release(superblock);
  }
}

template <Configuration C>
void OwnedSuperblocks<C>::collect_remote_frees() {
  const Guard guard(*this);
  std::size_t looked_at = 0;
  queues_.each([&](Superblock* superblock) {
    ++looked_at;
    add_taken(superblock, RemoteQueue::of(superblock).take(superblock));
    requeue_or_release(superblock);
  });
  collect_at_ = std::max(kMinCollectInterval, looked_at / 4);
}

template <Configuration C>
void OwnedSuperblocks<C>::on_thread_exit() {
  const Guard guard(*this);
  for (std::size_t class_number = 1; class_number < Classes::kCount; ++class_number) {
    Superblock* const superblock = queues_.current(class_number);
    if (superblock != nullptr && has_blocks(superblock)) {
      queues_.clear_current(superblock);
      allow_quick_returns(superblock, pool_->threaded);
    } else if (superblock != nullptr) {
      disown(superblock);
    }
  }
  queues_.purger().purge_waiting();
}

template <Configuration C>
bool OwnedSuperblocks<C>::purge_pages() {
  const Guard guard(*this);
  const Pool::Guard pool_guard(*pool_);
  const std::size_t before = pool_->region.statistics().purged_bytes;
  queues_.each([this](Superblock* superblock) {
    if (!superblock->current && superblock->size >= kMinPurgedBytes) {
      queues_.purger().purge(superblock);
    }
  });
  return pool_->region.statistics().purged_bytes != before;
}

template <Configuration C>
void OwnedSuperblocks<C>::take_over(OwnedSuperblocks& other) {
  queues_.take_over(other.queues_);
  queues_.each([this](Superblock* superblock) { superblock->owner = this; });
  {
    const Pool::Guard guard(*pool_);
    pool_->join(record_, this);
  }
  owner_ = other.owner_;
  started_ = other.started_;
}

template <Configuration C>
void OwnedSuperblocks<C>::add_taken(Superblock* superblock, RemoteQueue::Taken taken) {
  if (taken.first != nullptr) {
    store_shared(superblock->shared, true);
    prepend_blocks<C>(*pool_, superblock, taken.first);
    queues_.set_free_count(superblock, superblock->free_count + taken.count);
  }
}

// Brings a superblock's state up to date after it has received blocks: queues it if it was not, and
// returns it to the region if all its blocks are free. Returns false in the latter case.
template <Configuration C>
bool OwnedSuperblocks<C>::requeue_or_release(Superblock* superblock) {
  // A superblock in no queue has no owner: this heap becomes the owner now, and threads that tried
  // to reclaim before have given up.
  bool new_owner = !superblock->queued;
  if (new_owner && superblock->free_count < superblock->carved) {
    queues_.push_front(superblock);  // the processor's caches hold its blocks most likely
    become_owner(superblock);
  }
  while (superblock->free_count < superblock->carved && take_arrived(superblock, new_owner)) {
    new_owner = false;
  }
  if (superblock->free_count >= superblock->carved) {
    release(superblock);
    return false;
  }
  return true;
}

// Takes the blocks from a superblock's remote queue in two cases: the superblock may become free
// with them; or the owner is new, and a freeing thread would have reclaimed them. Returns true if
// it took some.
template <Configuration C>
bool OwnedSuperblocks<C>::take_arrived(Superblock* superblock, bool new_owner) {
  const std::uint32_t free = superblock->free_count;
  const std::uint32_t threshold = reclaim_threshold(superblock);
  if (!pool_->threaded || (!new_owner && free + threshold < superblock->carved)) {
    return false;
  }
  __atomic_store_n(&superblock->free_count, free, __ATOMIC_SEQ_CST);
  const std::uint32_t arrived = RemoteQueue::of(superblock).count();
  if (arrived == 0 || (arrived < threshold && free + arrived < superblock->carved)) {
    return false;
  }
  add_taken(superblock, RemoteQueue::of(superblock).take(superblock));
  return true;
}

// Returns a superblock without allocated blocks to the region.
template <Configuration C>
void OwnedSuperblocks<C>::release(Superblock* superblock) {
  queues_.clear_current(superblock);
  set_quick_limit(superblock, 0);
  if (superblock->queued) {
    queues_.remove(superblock);
    store_shared(superblock->queued, false);
  }
  queues_.set_free_count(superblock, 0);
  if (FreeBits::fit(superblock->size) && superblock->free_bits != 0) {
    FreeBits(superblock).clear();
  }
  wipe_superblocks<C>(*pool_, superblock, 1);
  if (chunk_of(superblock)->looks_resident) {
    RemoteQueue::of(superblock).forget_cursor();
  }
  const Pool::Guard guard(*pool_);
  __atomic_store_n(&pool_->region.tag(memory_of(superblock)), 0, __ATOMIC_RELAXED);
  pool_->region.give(superblock, 1);
}

}  // namespace heapwright::alloc
