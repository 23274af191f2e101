// Returns memory to the kernel that the program has not used for a while: free superblocks, the depots
// of threads that sleep, and wholly free pages of superblocks in use.
//
// The other rules return memory when blocks are freed: the region when it has more free superblocks than
// its allowance, page_purger.h when a superblock becomes three quarters free. They leave the allowance,
// superblocks that still wait, and pages that become free later. A service between two peaks of work frees
// few blocks, so these rules would return nothing more. Here a thread looks at all memory, step by step,
// when its frees have filled some lists. There is no thread for this, so a process that frees nothing keeps
// its memory.
//
// This memory returns if nobody has used it for StillCursor::kStillMs:
//   - free superblocks that no thread has needed in this time (low_water.h), down to `keep_bytes`
//   - depots of other threads that have not moved a list, and lists of this thread of a class of which it
//     has not moved one. Their blocks are scattered, so they keep many pages from becoming wholly free.
//   - wholly free pages of superblocks that are three quarters free, and whose number of free blocks has
//     hardly changed. A cursor (still_cursor.h) goes through the region's superblocks to find these. Where
//     memory may be in huge pages, page_purger.h alone decides: a few pages are not worth a huge page.
// Thread caches and current superblocks of threads that sleep stay.
//
// Cost. If the program needs a purged page again, the page has cost about 2 µs: a part of a system call,
// and a page fault. At most 4 pages are purged for each millisecond of run time, so this costs about 1% at
// most. A look at a superblock follows up to 256 links that no cache of the processor may hold, 25 µs. It
// counts as 8 pages, also if it finds none. (docs/design-notes/exgen.md has the cost of a page fault; the
// other times are estimates.)
//
// Locks. The cursor needs the pool's lock. While a thread holds it, no chunk is unmapped, so the thread can
// read descriptions. It must not wait for an owner's lock then, because the order of locks is a heap's,
// then the pool's. So it skips a superblock if another thread holds its owner's lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "heap.h"

namespace heapwright::alloc {

// Called with any superblock in use, by a thread that holds the pool's lock. Returns whether it looked for
// wholly free pages.
template <Configuration C>
bool OwnedSuperblocks<C>::purge_if_still(Superblock* superblock, std::uint64_t now) {
  if (kind_of(superblock) != Kind::kBlocks || FreeBits::fit(superblock->size) ||
      !__atomic_load_n(&superblock->queued, __ATOMIC_ACQUIRE)) {
    return false;
  }
  auto* const owner = static_cast<OwnedSuperblocks*>(load_shared(superblock->owner));
  const Pool& pool = *owner->pool_;
  if (owner->forks_ != pool.forks ||
      owner->purger().idle_bytes() <= pool.region.settings.keep_bytes / pool.heaps() ||
      (pool.threaded && !owner->lock_.lock_if_free())) {
    return false;
  }
  bool purges = load_shared(superblock->queued) && owner->owns(superblock) && !superblock->current &&
                superblock->free_count * 4 >= superblock->carved * 3 && !pool.region.may_be_huge(superblock);
  if (purges) {
    RemoteQueue& queue = RemoteQueue::of(superblock);
    if (!pool.threaded) {
      chunk_of(superblock)->looks_resident = true;
    }
    purges = queue.should_purge(superblock, now, StillCursor::kStillMs);
    if (purges) {
      owner->queues_.purger().purge(superblock);
      queue.set_purged(superblock);
    }
  }
  if (pool.threaded) {
    owner->lock_.unlock();
  }
  return purges;
}

template <Configuration C>
void Heap<C>::purge_still_superblocks() {
  constexpr std::size_t kAtOnce = 4;       // then other threads get the lock
  if (platform::Forking::keeps_locks()) {  // in a fork handler: a lock that we took would stay kept
    return;
  }
  StillCursor& cursor = pool_->still_cursor;
  Region& region = pool_->region;
  StillCursor::Step step;
  std::size_t done = 0;  // bytes
  {
    const Pool::Guard guard(*pool_);
    step = cursor.begin(region);
    if (step.superblocks != 0) {
      const std::size_t before = region.purged_bytes();
      region.purge_unused(step.bytes, step.now, StillCursor::kStillMs);
      done += region.purged_bytes() - before;
    }
  }
  while (step.superblocks != 0 && done < step.bytes) {
    const Pool::Guard guard(*pool_);
    for (std::size_t i = 0; i < kAtOnce && step.superblocks != 0 && done < step.bytes;
         ++i, --step.superblocks) {
      Superblock* const superblock = cursor.next(region);
      const std::size_t before = region.purged_bytes();
      if (superblock != nullptr && OwnedSuperblocks<C>::purge_if_still(superblock, step.now)) {
        done += region.purged_bytes() - before + StillCursor::kBytesOfLook;
      }
    }
  }
  if (done > step.bytes) {
    const Pool::Guard guard(*pool_);
    cursor.owe(done - step.bytes);
  }
}

// Returns the lists of still classes if this heap has much in free blocks. A class is still if as many blocks
// as at the last look have left depot and superblocks for the thread: almost always, no list has moved. If
// the thread does use the class, it needs one refill.
template <Configuration C>
void Heap<C>::return_still_lists() {
  const std::uint64_t now = region().settings.clock();
  if (C::kSecure || now - looked_at_lists_ms_ < StillCursor::kStillMs) {
    return;
  }
  looked_at_lists_ms_ = now;
  const bool has_much =
      depot_.bytes() + owned_.purger().idle_bytes() > region().settings.keep_bytes / pool_->heaps();
  for (std::size_t class_number = 1; class_number < Classes::kCount; ++class_number) {
    if (has_much && obtained_[class_number] == seen_obtained_[class_number]) {
      if (const BlockChain list = cache_.take_all(class_number); list.first != nullptr) {
        return_list(list);
      }
      empty_depot(class_number);
    }
    seen_obtained_[class_number] = obtained_[class_number];
  }
}

// Called now and then, also in a program whose blocks never leave the thread cache: returns memory
// that was kept because returning it had been premature, once that is paid for, and memory that nobody
// has used for seconds.
template <Configuration C>
void Heap<C>::return_idle_memory() {
  {
    const Pool::Guard guard(*pool_);
    pool_->region.purge_above_allowance();
  }
  if (depot_.bytes() > DepotLimit<C>::kMinBytes) {
    make_room();
  }
  if (depot_.span_superblocks() > SpanLimit::kMin) {
    decide_span_limit();
  }
  if (pool_->has_depots()) {
    shrink_idle_depot();
  }
  return_still_lists();
  purge_still_superblocks();
}

}  // namespace heapwright::alloc
