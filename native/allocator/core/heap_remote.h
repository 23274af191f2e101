// What Heap does about blocks of other heaps' superblocks, and about superblocks that change hands; see
// remote_queue.h for the protocol and heap.h, which includes this.
//
// Who owns a superblock is told by its word. The owner itself need not ask: `queued` is set by whoever
// becomes owner after it has set `owner`, and cleared by the owner before it leaves; so if `queued` is seen
// set, `owner` tells, and only this heap can change either when it is the owner. (Read in that order: acquire,
// then `owner`.) The tag is a hint.
//
// An owner that does nothing for long strands nothing: when a quarter of a superblock's blocks, or all that its
// owner has not, have come to the word, the pusher brings them home, as the owner and under the owner's lock.
// Which of two threads that give back the last blocks sees them all? One writes the word and then reads
// `free_count`, the other writes `free_count` and then reads the word, all sequentially consistent: at least one.
// Likewise who becomes owner sets `queued` and then reads the word: a pusher that found no owner has written it before.
#pragma once

namespace heapwright::alloc {

template <Configuration C>
bool Heap<C>::owns(Superblock* superblock) const {
  if (!pool_->threaded) {
    return true;
  }
  if (!__atomic_load_n(&superblock->queued, __ATOMIC_ACQUIRE)) {
    return false;
  }
  return __atomic_load_n(&superblock->owner, __ATOMIC_RELAXED) == this;
}

// A superblock that was full and had no owner: blocks come back to it.
template <Configuration C>
bool Heap<C>::own_again(Superblock* superblock) {
  RemoteQueue::Taken taken;
  if (!RemoteQueue::of(superblock).own_again(superblock, taken)) {
    return false;
  }
  superblock->free = taken.first;
  set_free_count(superblock, taken.count);
  return true;
}

// To be called when everything else about the superblock is in order.
template <Configuration C>
void Heap<C>::become_owner(Superblock* superblock) {
  const auto offset = static_cast<std::uint32_t>(superblock->number * sizeof(FreeList));
  __atomic_store_n(&region().tag(memory_of(superblock)), hot_.owner | offset, __ATOMIC_RELAXED);
  store_shared(superblock->owner, static_cast<void*>(this));
  __atomic_store_n(&superblock->queued, true, __ATOMIC_SEQ_CST);
}

// All blocks have been handed out.
template <Configuration C>
void Heap<C>::disown(Superblock* superblock) {
  clear_current(superblock);
  queues_[superblock->number].remove(superblock);
  store_shared(superblock->queued, false);
  if (pool_->threaded && !RemoteQueue::of(superblock).disown()) {
    add_taken(superblock, RemoteQueue::of(superblock).take(superblock));
    queues_[superblock->number].push_front(superblock);
    become_owner(superblock);
  }
}

template <Configuration C>
void Heap<C>::add_taken(Superblock* superblock, RemoteQueue::Taken taken) {
  if (taken.first == nullptr) {
    return;
  }
  if (superblock->free != nullptr) {
    Block* last = taken.first;
    for (Block* next = next_of(last); next != nullptr; next = next_of(last)) {
      last = next;
    }
    set_next(last, superblock->free);
  }
  superblock->free = taken.first;
  set_free_count(superblock, superblock->free_count + taken.count);
}

template <Configuration C>
void Heap<C>::drain_remote() {
  if (!pool_->threaded) {
    return;
  }
  for (RemoteFreeBatch& batch : batches_) {
    send(batch);
  }
  collect_remote_frees();
}

// What has come to the superblocks of this heap.
template <Configuration C>
void Heap<C>::collect_remote_frees() {
  const Guard guard(*this);
  std::size_t looked_at = 0;
  for (auto& queue : queues_) {
    for (Superblock* superblock = queue.first; superblock != nullptr; ++looked_at) {
      Superblock* const next = superblock->next;
      add_taken(superblock, RemoteQueue::of(superblock).take(superblock));
      requeue_or_release(superblock);
      superblock = next;
    }
  }
  drain_at_ = std::max(kDrainInterval, looked_at / 4);
}

template <Configuration C>
void Heap<C>::on_thread_exit() {
  flush_cache();
  {
    const Guard guard(*this);
    for (Superblock* const superblock : current_) {
      if (superblock != nullptr && has_blocks(superblock)) {
        clear_current(superblock);
      } else if (superblock != nullptr) {
        disown(superblock);
      }
    }
  }
  drain_remote();  // who saw one of them current has left it to this
}

// A block of a superblock that is not this heap's.
template <Configuration C>
void Heap<C>::free_remote(Superblock* superblock, Block* block) {
  if (!begins_block(superblock->reciprocal, block)) [[unlikely]] {
    report(block, Fault::kInterior);
    return;
  }
  RemoteFreeBatch& batch = batch_of(superblock);
  if (batch.superblock != superblock) {
    send(batch);
    batch = {superblock, nullptr, block, 0, 0, superblock->size, superblock->reciprocal};
  }
  if (add_to_batch(batch, block)) {
    send(batch);
  }
}

// One compare-and-swap for all of them.
template <Configuration C>
void Heap<C>::send(RemoteFreeBatch& batch) {
  Superblock* const superblock = batch.superblock;
  if (superblock == nullptr) {
    return;
  }
  const RemoteFreeBatch sent = batch;
  batch = {};
  const std::uint32_t threshold = claim_threshold(superblock);
  RemoteQueue::Taken taken;
  const auto link = [this](Block* last, Block* next) { set_next(last, next); };
  const bool mine =
      RemoteQueue::of(superblock).push(superblock, sent.first, sent.last, sent.count, threshold, link, taken);
  const std::uint32_t arrived = sent.count + taken.count;
  if (mine) {
    const Guard guard(*this);
    superblock->free = sent.first;
    set_free_count(superblock, arrived);
    requeue_or_release(superblock);
  } else if (region().contains(superblock) &&
             (arrived >= threshold || arrived + __atomic_load_n(&superblock->free_count, __ATOMIC_SEQ_CST) >=
                                          __atomic_load_n(&superblock->carved, __ATOMIC_RELAXED))) {
    reclaim(superblock);
  }
}

// By now the superblock may be anything: only if its owner has it under the lock is it what it was.
template <Configuration C>
void Heap<C>::reclaim(Superblock* superblock) {
  auto* const owner = static_cast<Heap*>(__atomic_load_n(&superblock->owner, __ATOMIC_SEQ_CST));
  if (owner->forks_ != owner->pool_->forks) {
    return;
  }
  const Guard guard(*owner);
  if (owner->owns(superblock) && !superblock->current) {
    owner->add_taken(superblock, RemoteQueue::of(superblock).take(superblock));
    owner->requeue_or_release(superblock);
  }
}

// If only few of a superblock's blocks are missing, what has come may be the rest; and if it is `mine` only now,
// there may be as much as a pusher would have brought home.
template <Configuration C>
bool Heap<C>::take_arrived(Superblock* superblock, bool mine) {
  const std::uint32_t free = superblock->free_count;
  const std::uint32_t threshold = claim_threshold(superblock);
  if (!pool_->threaded || (!mine && free + threshold < superblock->carved)) {
    return false;
  }
  __atomic_store_n(&superblock->free_count, free, __ATOMIC_SEQ_CST);
  const std::uint32_t arrived = RemoteQueue::of(superblock).count();
  if (arrived == 0 || (arrived < threshold && free + arrived < superblock->carved)) {
    return false;
  }
  add_taken(superblock, RemoteQueue::of(superblock).take(superblock));
  return true;  // with more of them here, less that comes is the rest: look again
}

template <Configuration C>
void Heap<C>::take_over(Heap& other) {
  hot_ = other.hot_;
  queues_ = other.queues_;
  current_ = other.current_;
  for (const auto& queue : queues_) {
    for (Superblock* superblock = queue.first; superblock != nullptr; superblock = superblock->next) {
      superblock->owner = this;
    }
  }
  cache_bytes_per_class_ = other.cache_bytes_per_class_;
  batches_ = other.batches_;
  quarantine_ = other.quarantine_;
  other.quarantine_ = {};
  idle_bytes_ = other.idle_bytes_;
  started_ = other.started_;
  on_fault = other.on_fault;
  other.hot_.lists = {};
  other.hot_.limit = 0;
  other.queues_ = {};
  other.current_ = {};
  other.batches_ = {};
}

// The process gets a second thread: superblocks that are full have no owner from now on.
template <Configuration C>
void Heap<C>::become_threaded(Pool& pool) {
  for (Superblock* s = pool.region.next_used(nullptr); s != nullptr; s = pool.region.next_used(s)) {
    if (s->kind == Kind::kBlocks) {
      RemoteQueue::of(s).reset();
      if (!s->queued) {
        RemoteQueue::of(s).disown();
      }
    }
  }
  pool.threaded = true;
}

}  // namespace heapwright::alloc
