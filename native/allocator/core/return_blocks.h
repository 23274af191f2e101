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
Block* OwnedSuperblocks<C>::return_blocks(BlockChain list) {
  const Guard guard(*this);
  Block* foreign = nullptr;
  std::size_t left = list.count;  // at most so many blocks follow
  for (Block* block = list.first; block != nullptr;) {
    Block* const next = next_of<C>(*pool_, block);
    Superblock* const superblock = superblock_of(block);
    const std::uint32_t count = superblock->free_count + 1;
    const bool alone = superblock_number(next) != superblock_number(block);
    if (alone && left > 0 && superblock->queued && owns(superblock) &&
        begins_block(superblock->reciprocal, block) &&
        count + reclaim_threshold(superblock) < superblock->carved) {  // blocks in random order
      set_next<C>(*pool_, block, superblock->free);
      superblock->free = block;
      queues_.set_free_count(superblock, count);
      queues_.purger().maybe_purge(superblock, count - 1);
      --left;
      block = next;
    } else {
      block = return_run(superblock, block, left, foreign);
      if (left == 0 && block != nullptr) [[unlikely]] {
        pool_->report(first_repeated<C>(*pool_, list.first), Fault::kDoubleFree);
        break;
      }
    }
  }
  return foreign;
}

// Returns the blocks from `block` on that belong to the same superblock, at most `left`, and counts
// `left` down. Returns the block that follows.
template <Configuration C>
Block* OwnedSuperblocks<C>::return_run(Superblock* superblock, Block* block, std::size_t& left,
                                       Block*& foreign) {
  const std::uintptr_t number = superblock_number(block);
  const std::uint32_t reciprocal = superblock->reciprocal;
  Block* first = nullptr;
  Block* last = nullptr;
  std::uint32_t count = 0;
  while (superblock_number(block) == number && left > 0) {
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
    --left;
    block = next;
  }
  if (count == 0 || (left == 0 && block != nullptr)) [[unlikely]] {
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
