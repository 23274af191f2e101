// Takes superblocks from other heaps: OwnedSuperblocks::take_from_another_heap.
//
// If threads free each other's blocks, or have bursts at different times, the free blocks of a class
// gather in one heap, and later in another. If each heap that lacks blocks started a new superblock,
// every heap would keep the largest number of free blocks that it ever had
// (docs/design-notes/reaper.md has figures). So a heap first looks for a superblock of the class that
// another heap owns, of which a quarter is free, and from which that heap does not allocate now. Its
// number of free blocks must be nearly that of an earlier look: a heap that frees a burst needs its
// superblocks for the next one.
//
// Superblocks of small blocks pass to another heap only if other threads have already freed blocks of
// them. Otherwise threads that share no data would share cache lines from then on.
//
// The other heap's lock is held while the superblock leaves its queue, and this heap's lock while it
// enters the new one. In between no heap owns it: `queued` is not set, so nobody reclaims blocks for
// it, and no thread finds it. requeue_or_release() sees the blocks that arrive in its remote queue
// meanwhile, as for every new owner. If another thread forks in between, it is lost in the child.
#pragma once

#include <cstddef>

#include "superblock_owner.h"

namespace heapwright::alloc {

// Returns a superblock of a class that another heap has given away; nullptr: there is none. Looks at a
// few heaps, each time at others, and skips those whose lock is held.
template <Configuration C>
Superblock* OwnedSuperblocks<C>::take_from_another_heap(std::size_t class_number) {
  const std::uint64_t now = pool_->region.settings.clock();
  const HeapRecord* first = nullptr;
  for (std::size_t i = 0; i < kHeapsPerLook; ++i) {
    looked_at_ = pool_->next_record(looked_at_);
    if (looked_at_ == nullptr || looked_at_ == first) {
      break;
    }
    first = first == nullptr ? looked_at_ : first;
    auto* const other = static_cast<OwnedSuperblocks*>(looked_at_->superblocks);
    if (other != this && other->purger().idle_bytes() >= kSuperblockBytes) {
      if (Superblock* const superblock = other->give_away(class_number, now); superblock != nullptr) {
        return superblock;
      }
    }
  }
  return nullptr;
}

// Called by other threads: gives up a superblock of a class of which at least a quarter is free and
// that is still, one of those that have been queued longest; nullptr: there is none, or this heap's
// lock is held. `now`: milliseconds.
template <Configuration C>
Superblock* OwnedSuperblocks<C>::give_away(std::size_t class_number, std::uint64_t now) {
  if (!lock_.lock_if_free()) {
    return nullptr;
  }
  Superblock* given = nullptr;
  Superblock* superblock = queues_.last(class_number);
  for (int i = 0; i < kSuperblocksPerLook && superblock != nullptr && given == nullptr; ++i) {
    const bool may_share = load_shared(superblock->shared) || !FreeBits::fit(superblock->size);
    if (!superblock->current && may_share && superblock->free_count >= reclaim_threshold(superblock) &&
        RemoteQueue::of(superblock).is_still(superblock, now)) {
      given = superblock;
    }
    superblock = superblock->previous;
  }
  if (given != nullptr) {
    set_quick_limit(given, 0);
    queues_.remove_for_another(given);
    store_shared(given->queued, false);
  }
  lock_.unlock();
  return given;
}

}  // namespace heapwright::alloc
