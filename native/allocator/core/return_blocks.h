// Returns lists of freed blocks to their superblocks: OwnedSuperblocks::return_blocks.
//
// Two cases are fast. Blocks freed in the order of addresses come in runs of one superblock: a run is
// linked into its superblock's free list as it is. Blocks freed in random order lie in another
// superblock each: then one block takes some sixty instructions, as long as its superblock is queued
// and far from being free.
#pragma once

#include <cstddef>
#include <cstdint>

#include "owned_superblocks.h"

namespace heapwright::alloc {

template <Configuration C>
Block* OwnedSuperblocks<C>::return_blocks(Block* block) {
  const Guard guard(*this);
  Block* foreign = nullptr;
  while (block != nullptr) {
    Block* const next = next_of<C>(*pool_, block);
    Superblock* const superblock = superblock_of(block);
    const std::uint32_t count = load_shared(superblock->free_count) + 1;
    const bool alone = superblock_number(next) != superblock_number(block);
    if (alone && load_shared(superblock->queued) && owns(superblock) &&
        begins_block(superblock->reciprocal, block) &&
        count + reclaim_threshold(superblock) < superblock->carved) {  // blocks in random order
      set_next<C>(*pool_, block, superblock->free);
      superblock->free = block;
      queues_.set_free_count(superblock, count);
      queues_.purger().maybe_purge(superblock, count - 1);
      block = next;
    } else {
      block = return_run(superblock, block, foreign);
    }
  }
  return foreign;
}

// Returns the blocks from `block` on that belong to the same superblock. Returns the block that
// follows.
template <Configuration C>
Block* OwnedSuperblocks<C>::return_run(Superblock* superblock, Block* block, Block*& foreign) {
  const std::uintptr_t number = superblock_number(block);
  const std::uint32_t reciprocal = superblock->reciprocal;
  Block* first = nullptr;
  Block* last = nullptr;
  std::uint32_t count = 0;
  while (superblock_number(block) == number) {
    Block* const next = next_of<C>(*pool_, block);
    if (!begins_block(reciprocal, block)) [[unlikely]] {
      pool_->report(block, Fault::kInterior);
      if (last != nullptr) {
        set_next<C>(*pool_, last, next);
      }
    } else {
      first = count++ == 0 ? block : first;
      last = block;
    }
    block = next;
  }
  if (count == 0) [[unlikely]] {
    return block;
  }
  if (!owns(superblock) && !own_again(superblock)) {  // it was full, and now another heap owns it
    set_next<C>(*pool_, last, foreign);
    foreign = first;
    return block;
  }
  set_next<C>(*pool_, last, superblock->free);
  superblock->free = first;
  const std::uint32_t before = superblock->free_count;
  queues_.set_free_count(superblock, before + count);
  if (before + count > superblock->carved) [[unlikely]] {
    pool_->report(first, Fault::kDoubleFree);
  }
  if (requeue_or_release(superblock)) {
    queues_.purger().maybe_purge(superblock, before);
  }
  return block;
}

}  // namespace heapwright::alloc
