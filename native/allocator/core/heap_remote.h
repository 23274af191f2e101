// What Heap does about blocks of other heaps' superblocks, and about superblocks that change hands; see
// remote.h for the protocol and heap.h, which includes this.
//
// Who owns a superblock is told by its word. The owner itself need not ask: `queued` is set by whoever
// becomes owner after it has set the tag, and cleared by the owner before it leaves; so if `queued` is seen
// set, the tag tells, and only this thread can change either when the tag is its own. (Read in that order:
// acquire, then the tag.)
#pragma once

#include "heap.h"

namespace heapwright::alloc {

template <Configuration C>
bool Heap<C>::owns(Superblock* superblock) const {
  if (!pool_->threaded) {
    return true;
  }
  if (!__atomic_load_n(&superblock->queued, __ATOMIC_ACQUIRE)) {
    return false;
  }
  const std::uint32_t tag = __atomic_load_n(&region().tag(memory_of(superblock)), __ATOMIC_RELAXED);
  return tag >> kOwnerShift << kOwnerShift == hot_.owner;
}

// A superblock that was full and had no owner: blocks come back to it.
template <Configuration C>
bool Heap<C>::own_again(Superblock* superblock) {
  Remote::Taken taken;
  if (!Remote::of(superblock).return_to(superblock, taken)) {
    return false;
  }
  superblock->free = taken.first;
  superblock->free_count = taken.count;
  return true;
}

// To be called when everything else about the superblock is in order.
template <Configuration C>
void Heap<C>::become_owner(Superblock* superblock) {
  const auto offset = static_cast<std::uint32_t>(superblock->number * sizeof(Front));
  __atomic_store_n(&region().tag(memory_of(superblock)), hot_.owner | offset, __ATOMIC_RELAXED);
  __atomic_store_n(&superblock->queued, true, __ATOMIC_RELEASE);
}

// All blocks have been handed out.
template <Configuration C>
void Heap<C>::leave(Superblock* superblock) {
  queues_[superblock->number].remove(superblock);
  __atomic_store_n(&superblock->queued, false, __ATOMIC_RELAXED);
  if (pool_->threaded && !Remote::of(superblock).leave()) {
    add_taken(superblock, Remote::of(superblock).take(superblock));
    queues_[superblock->number].push_front(superblock);
    become_owner(superblock);
  }
}

template <Configuration C>
void Heap<C>::add_taken(Superblock* superblock, Remote::Taken taken) {
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
  superblock->free_count += taken.count;
}

template <Configuration C>
void Heap<C>::settle() {
  if (!pool_->threaded) {
    return;
  }
  for (Stray& stray : strays_) {
    send(stray);
  }
  for (auto& queue : queues_) {
    for (Superblock* superblock = queue.first; superblock != nullptr;) {
      Superblock* const next = superblock->next;
      add_taken(superblock, Remote::of(superblock).take(superblock));
      settled(superblock);
      superblock = next;
    }
  }
}

// A block of a superblock that is not this heap's.
template <Configuration C>
void Heap<C>::free_remote(Superblock* superblock, Block* block) {
  if (!begins_block(block, superblock->reciprocal)) [[unlikely]] {
    report(block, Fault::kInside);
    return;
  }
  Stray& stray = strays_[reinterpret_cast<std::uintptr_t>(superblock) / sizeof(Superblock) % kStrays];
  if (stray.superblock != superblock) {
    send(stray);
    stray.superblock = superblock;
    stray.last = block;
  }
  set_next(block, stray.first);
  stray.first = block;
  if (++stray.count * superblock->size >= kStrayBytes) {
    send(stray);
  }
}

// One compare-and-swap for all of them.
template <Configuration C>
void Heap<C>::send(Stray& stray) {
  Superblock* const superblock = stray.superblock;
  if (superblock == nullptr) {
    return;
  }
  const std::uint32_t enough = std::max(superblock->capacity / kEnough, 1U);
  Remote::Taken taken;
  const auto link = [this](Block* last, Block* next) { set_next(last, next); };
  if (Remote::of(superblock).push(superblock, stray.first, stray.last, stray.count, enough, link, taken)) {
    superblock->free = stray.first;
    superblock->free_count = stray.count + taken.count;
    stray = {};
    settled(superblock);
  }
  stray = {};
}

template <Configuration C>
void Heap<C>::take_over(Heap& other) {
  hot_ = other.hot_;
  queues_ = other.queues_;
  front_bytes_ = other.front_bytes_;
  strays_ = other.strays_;
  started_ = other.started_;
  on_fault = other.on_fault;
  other.hot_.fronts = {};
  other.hot_.limit = 0;
  other.queues_ = {};
  other.strays_ = {};
}

// The process gets a second thread: superblocks that are full have no owner from now on.
template <Configuration C>
void Heap<C>::become_threaded(Pool& pool) {
  for (Superblock* s = pool.region.next_used(nullptr); s != nullptr; s = pool.region.next_used(s)) {
    if (s->kind == Kind::kBlocks) {
      Remote::of(s).reset();
      if (!s->queued) {
        Remote::of(s).leave();
      }
    }
  }
  pool.threaded = true;
}

}  // namespace heapwright::alloc
