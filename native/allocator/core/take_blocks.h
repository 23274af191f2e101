// Takes blocks from superblocks for the thread cache: OwnedSuperblocks::refill.
//
// The order is: the current superblock of the class, the first in its queue, one of another heap
// (superblocks_from_others.h), a new one from the region.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "superblock_owner.h"
#include "superblocks_from_others.h"

namespace heapwright::alloc {

template <Configuration C>
BlockChain OwnedSuperblocks<C>::refill(std::size_t class_number, std::size_t batch, bool may_grow) {
  Superblock* const current = queues_.current(class_number);
  if (current != nullptr && has_blocks(current)) {
    return take_blocks(current, batch);
  }
  BlockChain blocks = take_from_queue(class_number, batch, nullptr);
  while (blocks.first == nullptr) {
    Superblock* added = pool_->threaded ? take_from_another_heap(class_number) : nullptr;
    if (added == nullptr) {
      added = start_superblock(class_number, may_grow);
    }
    if (added == nullptr) {
      return {};
    }
    blocks = take_from_queue(class_number, batch, added);
  }
  return blocks;
}

// Takes blocks from the first superblock in the queue, which becomes current. The present current
// superblock has no block left. `added`, which has no owner, is queued before; nullptr: none. Returns
// an empty chain if the queue is empty: there was none, or all its blocks had come back meanwhile.
template <Configuration C>
BlockChain OwnedSuperblocks<C>::take_from_queue(std::size_t class_number, std::size_t batch,
                                                Superblock* added) {
  const Guard guard(*this);
  if (added != nullptr && added->carved == 0) {  // a new one
    queues_.push_front(added);
    become_owner(added);
  } else if (added != nullptr) {
    queues_.accept(added);
    requeue_or_release(added);
  }
  Superblock* superblock = queues_.current(class_number);
  if (superblock != nullptr) {
    disown(superblock);
    ++used_up_;
  }
  superblock = queues_.first(class_number);
  if (superblock == nullptr) {
    return {};
  }
  set_quick_limit(superblock, 0);
  queues_.make_current(superblock);
  const BlockChain blocks = take_blocks(superblock, batch);
  if (!has_blocks(superblock)) {
    disown(superblock);
    ++used_up_;
  }
  return blocks;
}

// Takes the whole free list, because the links of a list that is walked may be in no cache of the
// processor. While pages are purged, `free_count` also counts their blocks, so a list of unknown
// length would leave; then it takes `batch` blocks. A hardened build always does: its full lists
// do not go to a depot but return to the superblocks, and a walk through thousands of blocks after
// each few dozen frees would cost more than all checks of these blocks.
template <Configuration C>
BlockChain OwnedSuperblocks<C>::take_blocks(Superblock* superblock, std::size_t batch) {
  if (superblock->free == nullptr && superblock->purged_pages != 0) {
    if (FreeBits::fit(superblock->size)) {
      const BlockChain some = FreeBits(superblock).take<C>(*pool_, 2 * batch);
      queues_.set_free_count(superblock, superblock->free_count - static_cast<std::uint32_t>(some.count));
      return some;
    }
    queues_.purger().reuse(superblock);
  }
  if (superblock->free == nullptr && pool_->threaded && RemoteQueue::of(superblock).count() >= batch) {
    add_taken(superblock, RemoteQueue::of(superblock).take(superblock));  // better than untouched memory
  }
  if (superblock->free == nullptr) {
    return carve<C>(*pool_, superblock, C::kSecure ? std::max(batch, kMinCarved<C>) : batch);
  }
  const std::uint32_t with_bits = FreeBits::fit(superblock->size) ? superblock->free_bits : 0;
  if (!C::kSecure && superblock->purged_pages == with_bits) {
    const BlockChain all{superblock->free, superblock->free_count - with_bits};
    superblock->free = nullptr;
    queues_.set_free_count(superblock, with_bits);
    return all;
  }
  const BlockChain some = split_free_list<C>(*pool_, superblock, batch);
  queues_.set_free_count(superblock, superblock->free_count - static_cast<std::uint32_t>(some.count));
  return some;
}

// Returns a new superblock, which is not queued yet; nullptr: there is no memory.
template <Configuration C>
Superblock* OwnedSuperblocks<C>::start_superblock(std::size_t class_number, bool may_grow) {
  Superblock* superblock = nullptr;
  {
    const Pool::Guard guard(*pool_);
    if constexpr (C::kSecure) {
      pool_->start_hardening();
    }
    if (!may_grow && pool_->region.needs_new_memory(kSuperblockBytes)) {
      return nullptr;
    }
    superblock = pool_->region.take(1, static_cast<std::uint8_t>(class_number),
                                    Classes::bytes(class_number) <= HugePages::kLargestBlockBytes);
    if (superblock == nullptr) {
      return nullptr;
    }
    describe_superblock(superblock, class_number, Classes::bytes(class_number),
                        Classes::colours(class_number));
    pool_->join(record_, this);
    superblock->touched = !pool_->region.last_was_clean();
    if (!C::kSecure && FreeBits::fit(superblock->size)) {
      chunk_of(superblock)->bits_resident = true;
    }
  }
  ++started_;
  if (pool_->threaded) {
    RemoteQueue::of(superblock).reset();
  }
  return superblock;
}

}  // namespace heapwright::alloc
