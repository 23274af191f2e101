// Returns lists of freed blocks to their superblocks: OwnedSuperblocks::return_blocks.
//
// Two cases are fast. Blocks freed in the order of addresses come in runs of one superblock: a run
// is linked into its superblock's free list as it is. Blocks freed in random order lie in another
// superblock each: then each block is added by itself, as long as its superblock is queued and far
// from being free.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "superblock_owner.h"

namespace heapwright::alloc {

template <Configuration C>
Block* OwnedSuperblocks<C>::return_blocks(BlockChain list, Returned how) {
  const bool bits_detect_double_frees = !C::kSecure && how == Returned::kScattered;
  if (!bits_detect_double_frees && drop_if_cyclic(list)) {
    return nullptr;
  }
  const Guard guard(*this);
  if (how == Returned::kScattered) {
    return pool_->threaded ? return_scattered<true>(list) : return_scattered<false>(list);
  }
  Block* remote = nullptr;
  Block* block = list.first;
  const bool for_owner = how == Returned::kForOwner;
  while (block != nullptr) {
    Block* const next = next_of<C>(*pool_, block);
    Superblock* const superblock = superblock_of(block);
    const std::uint32_t count = load_shared(superblock->free_count) + 1;
    const bool is_single = superblock_number(next) != superblock_number(block);
    if (is_single && !for_owner && load_shared(superblock->queued) && owns(superblock) &&
        begins_block(superblock, block) &&
        count + reclaim_threshold(superblock) < superblock->carved) {  // blocks in random order
      if (C::kSecure || !FreeBits::fit(superblock->size)) {
        set_next<C>(*pool_, block, superblock->free);
        superblock->free = block;
      } else if (!FreeBits::add(superblock, block, FreeBits::factor(superblock))) [[unlikely]] {
        pool_->report(block, Fault::kDoubleFree);
        block = next;
        continue;
      }
      queues_.set_free_count(superblock, count);
      queues_.purger().after_frees(superblock, count - 1);
      block = next;
    } else {
      block = return_run(superblock, block, remote, for_owner);
    }
  }
  return remote;
}

// Reports a list with a cycle, made by a double free. Its caller drops the list: in a superblock's
// free list it would do harm.
template <Configuration C>
bool OwnedSuperblocks<C>::drop_if_cyclic(BlockChain list) const {
  if (!has_cycle<C>(*pool_, list)) [[likely]] {
    return false;
  }
  pool_->report(first_repeated<C>(*pool_, list.first), Fault::kDoubleFree);
  return true;
}

// Returns linked blocks of one class, of which no pages are purged, in random order. A list with a
// cycle comes to a block whose bit is set. So a cycle is looked for only then, and where a block
// gets no bit.
template <Configuration C>
template <bool kThreaded>
Block* OwnedSuperblocks<C>::return_scattered(BlockChain list) {
  Block* block = list.first;
  const std::uint32_t size = superblock_of(block)->size;
  const std::uint64_t factor = FreeBits::factor(superblock_of(block));
  Block* remote = nullptr;
  bool has_end = C::kSecure;
  NearlyFree nearly_free;
  std::size_t quick = 0;
  while (block != nullptr) {
    Superblock* const superblock = superblock_of(block);
    const std::uint32_t limit =
        kThreaded ? __atomic_load_n(&superblock->quick_limit, __ATOMIC_ACQUIRE) : superblock->quick_limit;
    const std::uint32_t count = kThreaded ? load_shared(superblock->free_count) : superblock->free_count;
    // Only a faulty program makes a list of blocks of several classes.
    const bool owned = superblock->size == size && (!kThreaded || load_shared(superblock->owner) == this);
    const bool below_limit = count < limit;
    if (!owned || (!below_limit && (!kThreaded || limit == 0 || count + 1 >= superblock->carved)))
        [[unlikely]] {
      if (!has_end && drop_if_cyclic({block, list.count})) {
        break;
      }
      has_end = true;
      check_nearly_free(nearly_free);
      block = return_run(superblock, block, remote, false);
      continue;
    }
    Block* const next = next_of<C>(*pool_, block);
    if constexpr (C::kSecure) {
      set_next<C>(*pool_, block, superblock->free);
      superblock->free = block;
    } else if (!FreeBits::add(superblock, block, factor)) [[unlikely]] {
      pool_->report(block, begins_block(superblock, block) ? Fault::kDoubleFree : Fault::kInterior);
      if (!has_end && has_cycle<C>(*pool_, {next, list.count})) {
        break;
      }
      has_end = true;
      block = next;
      continue;
    }
    store_shared(superblock->free_count, count + 1);
    ++quick;
    block = next;
    if (kThreaded && !below_limit) {
      nearly_free.superblocks[nearly_free.count++] = superblock;
      if (nearly_free.count == nearly_free.superblocks.size()) {
        check_nearly_free(nearly_free);
      }
    }
  }
  check_nearly_free(nearly_free);
  queues_.purger().add_idle(quick * size);
  return remote;
}

// Returns superblocks to the region of which all blocks are free but those that wait in the remote
// queue. One fence serves them all: each number of free blocks was written before it, and the
// queues are read after it. See 'Reclaiming'.
template <Configuration C>
void OwnedSuperblocks<C>::check_nearly_free(NearlyFree& nearly_free) {
  if (nearly_free.count == 0) {
    return;
  }
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  for (std::size_t i = 0; i < nearly_free.count; ++i) {
    Superblock* const superblock = nearly_free.superblocks[i];
    if (superblock != nullptr &&
        superblock->free_count + RemoteQueue::of(superblock).count() >= superblock->carved &&
        !requeue_or_release(superblock)) {
      std::replace(nearly_free.superblocks.begin() + i, nearly_free.superblocks.begin() + nearly_free.count,
                   superblock, static_cast<Superblock*>(nullptr));
    }
  }
  nearly_free.count = 0;
}

// Returns the blocks from `block` on that belong to the same superblock. Returns the block that
// follows.
template <Configuration C>
Block* OwnedSuperblocks<C>::return_run(Superblock* superblock, Block* block, Block*& remote, bool for_owner) {
  const std::uintptr_t number = superblock_number(block);
  Block* first = nullptr;
  Block* last = nullptr;
  std::uint32_t count = 0;
  while (superblock_number(block) == number) {
    Block* const next = next_of<C>(*pool_, block);
    if (!begins_block(superblock, block)) [[unlikely]] {
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
  // Another heap owns it now, or its owner uses it without the lock.
  const bool ours = owns(superblock);
  if (ours ? for_owner && superblock->current : !own_again(superblock)) {
    set_next<C>(*pool_, last, remote);
    remote = first;
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
    queues_.purger().after_frees(superblock, before);
  }
  return block;
}

}  // namespace heapwright::alloc
