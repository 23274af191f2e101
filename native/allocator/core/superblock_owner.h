// Makes a heap the owner of a superblock, and lets it give the superblock up: the part of
// OwnedSuperblocks that changes `owner`, `queued` and `quick_limit`. See 'Ownership' in
// owned_superblocks.h.
#pragma once

#include <cstdint>

#include "owned_superblocks.h"

namespace heapwright::alloc {

template <Configuration C>
void OwnedSuperblocks<C>::become_threaded(Pool& pool) {
  for (Superblock* s = pool.region.next_used(nullptr); s != nullptr; s = pool.region.next_used(s)) {
    if (s->kind == Kind::kBlocks) {
      RemoteQueue::of(s).reset();
      if (!s->queued) {
        RemoteQueue::of(s).disown();
      } else if (s->quick_limit != 0) {
        allow_quick_returns(s, true);  // from now on with a reserve for remote frees
      }
    }
  }
  pool.threaded = true;
}

template <Configuration C>
bool OwnedSuperblocks<C>::owns(Superblock* superblock) const {
  if (!pool_->threaded) {
    return true;
  }
  if (!__atomic_load_n(&superblock->queued, __ATOMIC_ACQUIRE)) {
    return false;
  }
  return __atomic_load_n(&superblock->owner, __ATOMIC_RELAXED) == this;
}

// Becomes the owner of a superblock that was full and had none, because blocks come back to it.
// Returns false if another heap owns it.
template <Configuration C>
bool OwnedSuperblocks<C>::own_again(Superblock* superblock) {
  RemoteQueue::Taken taken;
  if (!RemoteQueue::of(superblock).own_again(superblock, taken)) {
    return false;
  }
  superblock->free = taken.first;
  store_shared(superblock->shared, load_shared(superblock->shared) || taken.first != nullptr);
  queues_.set_free_count(superblock, taken.count);
  return true;
}

// Publishes this heap as the owner, after everything else about the superblock is in order.
template <Configuration C>
void OwnedSuperblocks<C>::become_owner(Superblock* superblock) {
  const std::uint32_t tag = make_tag(owner_, superblock->size_class);
  __atomic_store_n(&pool_->region.tag(memory_of(superblock)), tag, __ATOMIC_RELAXED);
  store_shared(superblock->owner, static_cast<void*>(this));
  __atomic_store_n(&superblock->queued, true, __ATOMIC_SEQ_CST);
  allow_quick_returns(superblock, pool_->threaded);
}

// Gives up a superblock all of whose blocks have been handed out, unless remotely freed blocks have
// arrived meanwhile.
template <Configuration C>
void OwnedSuperblocks<C>::disown(Superblock* superblock) {
  queues_.clear_current(superblock);
  queues_.remove(superblock);
  set_quick_limit(superblock, 0);
  store_shared(superblock->queued, false);
  if (pool_->threaded && !RemoteQueue::of(superblock).disown()) {
    add_taken(superblock, RemoteQueue::of(superblock).take(superblock));
    queues_.push_front(superblock);
    become_owner(superblock);
  }
}

}  // namespace heapwright::alloc
