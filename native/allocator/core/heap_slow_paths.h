// Implements the slow paths of a heap: refills, flushes, and every size and address that the fast
// paths in heap.h refuse.
//
// Include this header to use a heap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "heap.h"
#include "heap_depot.h"

namespace heapwright::alloc {

template <Configuration C>
void* Heap<C>::allocate_slow(std::size_t bytes) {
  zeroed_block_ = nullptr;
  if (bytes <= kLargestClassBytes - Cache::kMarkBytes) {
    return allocate_class(Classes::of(bytes + Cache::kMarkBytes), bytes);
  }
  if (bytes <= kLargestSpanBytes) {
    if (void* const span = allocate_span(bytes); span != nullptr) {
      return span;
    }
  }
  return allocate_large(bytes, 1);
}

template <Configuration C>
void* Heap<C>::allocate_aligned(std::size_t bytes, std::size_t alignment) {
  if (alignment <= Classes::kGranule) {
    return allocate_slow(bytes);
  }
  if (bytes <= kLargestClassBytes - Cache::kMarkBytes && alignment <= kSuperblockBytes) {
    if (const std::size_t number = Classes::aligned(bytes + Cache::kMarkBytes, alignment); number != 0) {
      zeroed_block_ = nullptr;
      return allocate_class(number, bytes);
    }
  }
  if (bytes <= kLargestSpanBytes && alignment <= kSuperblockBytes) {
    if (void* const span = allocate_span(bytes); span != nullptr) {
      return span;
    }
  }
  return allocate_large(bytes, alignment);
}

template <Configuration C>
void* Heap<C>::allocate_class(std::size_t class_number, std::size_t bytes) {
  Block* block = cache_.take_from(class_number);
  if (block == nullptr) {
    if (owned_.collection_due()) {
      drain_remote();
    }
    if (!refill(class_number) && !(reclaim_spans() && refill(class_number))) {
      trim();  // other lists may hold the last block of a superblock
      if (!refill(class_number)) {
        return nullptr;
      }
    }
    block = cache_.take_from(class_number);
  }
  return hand_out(block, bytes);
}

// Fills the empty list of a class. Returns false if there is no memory.
template <Configuration C>
bool Heap<C>::refill(std::size_t class_number) {
  ++moved_lists_;
  if (BlockChain list = depot_.pop(class_number); list.first != nullptr) {
    const auto max = static_cast<std::size_t>(cache_.max_blocks(class_number));
    obtained_[class_number] += estimated_count(list);
    if (list.count > 2 * max) {
      const BlockChain rest = split_list<C>(*pool_, list, max);
      if (rest.first != nullptr) {
        obtained_[class_number] -= estimated_count(rest);
        depot_.push(class_number, rest, pool_->threaded);
      }
    }
    depot_limit_.after_pop(depot_.bytes());
    cache_.fill(class_number, list.first, list.count);
    return true;
  }
  if (!C::kSecure && pool_->threaded && class_number >= FreedByOthers<C>::kFirstClass &&
      take_freed_by_others(class_number)) {
    return true;
  }
  const std::size_t batch = cache_.batch_blocks(class_number);
  const bool may_empty = may_empty_depots();
  BlockChain blocks = owned_.refill(class_number, batch, !may_empty);
  if (blocks.first == nullptr && may_empty) {
    empty_own_or_idle_depot(kSuperblockBytes);
    blocks = owned_.refill(class_number, batch);
  }
  cache_.update_region_bounds();
  if (blocks.first == nullptr) {
    return false;
  }
  obtained_[class_number] += static_cast<std::int64_t>(blocks.count);
  depot_limit_.add_taken(class_number, blocks.count);
  cache_.fill(class_number, blocks.first, blocks.count);
  return true;
}

// Fills the empty list of a class with blocks that other threads have freed for this heap. Returns
// false if there are none.
template <Configuration C>
bool Heap<C>::take_freed_by_others(std::size_t class_number) {
  FreedByOthers<C>& freed = owned_.freed_by_others();
  depot_.count_move();
  if (++takes_from_others_ % kTakesPerLook == 0 &&
      freed.bytes() > FreedByOthers<C>::usual_limit(*pool_) / 2) {
    freed.take_unused([this](BlockChain other) { return_list(other); });
  }
  BlockChain list = check_list<C>(*pool_, freed.take_for_use(class_number));
  if (list.first == nullptr) {
    if (!freed.is_open(*pool_)) {
      const Pool::Guard guard(*pool_);
      freed.open(*pool_);
      pool_->join(depot_);
      return false;
    }
    freed.after_miss(*pool_, class_number);
    return false;
  }
  const auto max = static_cast<std::size_t>(cache_.max_blocks(class_number));
  if (list.count > 2 * max) {
    const BlockChain rest = split_list<C>(*pool_, list, max);
    depot_.push(class_number, rest, pool_->threaded);
  }
  obtained_[class_number] += static_cast<std::int64_t>(list.count);
  cache_.fill(class_number, list.first, list.count);
  return true;
}

template <Configuration C>
void* Heap<C>::allocate_span(std::size_t bytes) {
  if (void* const freed = allocate_freed_span(bytes); freed != nullptr) {
    return freed;
  }
  const std::size_t length = BigBlocks<C>::superblocks_for(bytes);
  Superblock* span = nullptr;
  if (!C::kSecure && is_threaded()) {
    span = pop_span(length);
  } else if (!C::kSecure) {
    span = region().take_span(length);
  }
  return span != nullptr ? BigBlocks<C>::use_again(span, bytes) : allocate_span_in_region(bytes);
}

// Allocates a span where neither the depot has one of its length nor, in a process with one thread,
// the region.
template <Configuration C>
void* Heap<C>::allocate_span_in_region(std::size_t bytes) {
  // A depot without a span of this length returns all others if they are many: otherwise a program
  // with random lengths would hold many of each.
  Superblock* const others =
      span_limit_.is_much(depot_.span_superblocks()) ? depot_.take_all_own_spans() : nullptr;
  const bool may_empty = may_empty_depots();
  auto result = big_.allocate_span(bytes, !may_empty, others);
  if (result.block == nullptr && may_empty) {
    reclaim_spans();
    empty_own_or_idle_depot(bytes);
    result = big_.allocate_span(bytes);
  }
  cache_.update_region_bounds();
  if (result.block != nullptr) {
    zeroed_block_ = result.reads_zero ? result.block : nullptr;
    depot_.add_obtained(static_cast<std::int64_t>(BigBlocks<C>::superblocks_for(bytes)));
    span_limit_.add_taken();
    set_span_bounds();
  }
  return result.block;
}

template <Configuration C>
bool Heap<C>::free_span(void* address, Fault& fault, FreedAs freed_as) {
  return big_.free_span(address, fault, freed_as, [this](Superblock* span) { return keep_span(span); });
}

template <Configuration C>
void* Heap<C>::allocate_large(std::size_t bytes, std::size_t alignment) {
  if (bytes >= kAddressLimit || alignment >= kAddressLimit) {  // no freed memory could make room for it
    return nullptr;
  }
  if (may_empty_depots()) {
    empty_own_or_idle_depot(bytes);
  }
  auto result = big_.allocate_large(bytes, alignment);
  if (result.block == nullptr && reclaim_spans()) {
    result = big_.allocate_large(bytes, alignment);
  }
  if (result.block == nullptr) {  // free memory may hold the address space, or count towards the limit
    trim();
    if (bytes <= kLargestSpanBytes && alignment <= kSuperblockBytes) {
      if (void* const span = allocate_span(bytes); span != nullptr) {
        return span;
      }
    }
    big_.shrink_region();
    cache_.update_region_bounds();
    result = big_.allocate_large(bytes, alignment);
  }
  if (result.block != nullptr) {
    zeroed_block_ = result.reads_zero ? result.block : nullptr;
  }
  return result.block;
}

template <Configuration C>
bool Heap<C>::free_slow(void* address, Fault& fault, FreedAs freed_as) {
  if (address == nullptr) {
    return true;
  }
  if (!region().contains(address)) {
    const bool freed = big_.free_large(address, fault, freed_as);
    // The depot's share is one of the memory in use, which may be much less now.
    for (int i = 0; i < kMaxHalvings && depot_.bytes() > DepotLimit<C>::kMinBytes && !make_room(); ++i) {
    }
    return freed;
  }
  cache_.update_region_bounds();  // the fast path may have failed because the region has grown
  const std::uint32_t tag = tag_of(*pool_, address);
  const std::uint32_t offset = list_offset(tag);
  if (offset == 0) {
    return free_span(address, fault, freed_as);
  }
  if constexpr (C::kSecure) {
    quarantine_block(address, freed_as);
    return true;
  }
  if (tag - offset != cache_.owner()) {
    free_remote_slow(tag, static_cast<Block*>(address));
  } else if (!cache_.put(offset, address)) {
    flush_full_list(address);
  }
  return true;
}

// Frees an address in the region whose tag named another heap when free() read it.
template <Configuration C>
bool Heap<C>::free_without_batch(void* address, Fault& fault, FreedAs freed_as) {
  const std::uint32_t tag = tag_of(*pool_, address);
  if (list_offset(tag) == 0 || tag - list_offset(tag) == cache_.owner()) [[unlikely]] {
    return free_slow(address, fault, freed_as);
  }
  free_remote_slow(tag, static_cast<Block*>(address));
  return true;
}

// Frees a block whose superblock's tag, `tag`, names another heap.
template <Configuration C>
void Heap<C>::free_remote_slow(std::uint32_t tag, Block* block) {
  const std::size_t class_number = class_of_tag(tag);
  if (class_number < FreedByOthers<C>::kFirstClass || !return_to_allocating_heap(class_number, block)) {
    remote_frees_.free(superblock_of(block), block);
  }
}

// Puts a freed block of class `class_number` on a list of the heap that allocated it. Returns false
// if that heap does not take it.
template <Configuration C>
bool Heap<C>::return_to_allocating_heap(std::size_t class_number, Block* block) {
  Superblock* const superblock = superblock_of(block);
  auto* const owner = static_cast<OwnedSuperblocks<C>*>(load_shared(superblock->owner));
  FreedByOthers<C>& freed = owner->freed_by_others();
  if (!freed.is_open(*pool_) || !begins_block(superblock, block) || !freed.add(*pool_, class_number, block)) {
    return false;
  }
  if (!freed.is_open(*pool_)) [[unlikely]] {
    freed.take_all([this](BlockChain list) { return_list(list); });
  }
  return true;
}

template <Configuration C>
void Heap<C>::flush_full_list(void* address) {
  const std::size_t class_number = class_of_tag(tag_of(*pool_, address));
  if (class_number == 0) {  // no block of a class: the push stored nothing sensible
    cache_.reset_list_of_no_class();
    Fault fault{};
    if (!free_span(address, fault, {})) {
      pool_->report(address, fault);
    }
    return;
  }
  store_list(class_number, cache_.take_full(class_number));
}

template <Configuration C>
void Heap<C>::drain_remote() {
  if (!pool_->threaded) {
    return;
  }
  remote_frees_.send_all();
  owned_.collect_remote_frees();
}

template <Configuration C>
std::size_t Heap<C>::usable(const void* address) const {
  if constexpr (C::kSecure) {  // the bytes asked for: the mark stands directly behind them
    const Hardening::Mark mark = mark_of(*pool_, address);
    return mark.intact ? mark.bytes : 0;
  }
  const std::size_t class_number = region().contains(address) ? class_of_tag(tag_of(*pool_, address)) : 0;
  return class_number != 0 ? kUsableBytes<C>[class_number] : big_.usable(address);
}

template <Configuration C>
void* Heap<C>::resize(void* address, std::size_t bytes) {
  Hardening::Mark mark{};
  if constexpr (C::kSecure) {
    mark = mark_of(*pool_, address);
    if (!mark.intact) {
      return nullptr;
    }
    check_freed_as(*pool_, address, mark, {});
  }
  const std::size_t class_number = region().contains(address) ? class_of_tag(tag_of(*pool_, address)) : 0;
  if (class_number == 0) {
    return resize_big(address, bytes, mark.origin);
  }
  if (!fits_in_place(kUsableBytes<C>[class_number], bytes)) {
    return nullptr;
  }
  if constexpr (C::kSecure) {
    pool_->hardening.write_mark(address, superblock_of(address)->size, bytes, mark.origin);
  }
  return address;
}

template <Configuration C>
void* Heap<C>::resize_big(void* address, std::size_t bytes, Origin origin) {
  const bool is_in_region = region().contains(address);
  const std::int64_t before = is_in_region ? superblock_of(address)->length : 0;
  void* const block = big_.resize(address, bytes, origin);
  if (is_in_region && block != nullptr) {
    depot_.add_obtained(superblock_of(block)->length - before);
  }
  return block;
}

template <Configuration C>
void Heap<C>::take_over(Heap& other) {
  cache_.take_over(other.cache_);
  depot_.take_over(other.depot_);
  {
    const Pool::Guard guard(*pool_);
    pool_->join(depot_);
  }
  obtained_ = other.obtained_;
  owned_.take_over(other.owned_);
  remote_frees_.take_over(other.remote_frees_);
  quarantine_ = other.quarantine_;
  other.quarantine_ = {};
}

// Hardened builds: a freed block waits in quarantine before it can be reused.
template <Configuration C>
void Heap<C>::quarantine_block(void* address, FreedAs freed_as) {
  if (accept_free(*pool_, address, freed_as)) {
    auto* const block = static_cast<Block*>(address);
    if (pool_->quarantine_bytes == 0) {
      reuse_block(block);
      return;
    }
    if (!quarantine_.is_seeded()) {
      quarantine_.seed(pool_->hardening.random());
    }
    quarantine_.add(block, pool_->quarantine_bytes, [this](Block* old) { reuse_block(old); });
  }
}

// Makes a block that has left quarantine available again: to the cache, or to the heap that owns
// it.
template <Configuration C>
void Heap<C>::reuse_block(Block* block) {
  // prepare_block() checks again, but the superblock may return to the region and be wiped before
  // that.
  check_wiped(*pool_, block, superblock_of(block)->size);
  const std::uint32_t tag = tag_of(*pool_, block);
  const std::uint32_t offset = list_offset(tag);
  if (pool_->threaded && tag - offset != cache_.owner()) {
    remote_frees_.free(superblock_of(block), block);
  } else if (!cache_.put(offset, block)) {
    store_list(class_of_tag(tag), cache_.take_full(class_of_tag(tag)));
  }
}

template <Configuration C>
constexpr void Heap<C>::describe(HeapLayout& layout) const {
  layout.first_heap = this;
  layout.first_next_created = static_cast<const void*>(&next_created);
  layout.heap_bytes = sizeof(Heap);
  cache_.describe(layout);
  depot_.describe(layout);
  owned_.freed_by_others().describe(layout);
  remote_frees_.describe(layout);
  if constexpr (C::kSecure) {
    layout.first_quarantine_bytes = quarantine_.bytes_field();
  }
}

template <Configuration C>
Statistics Heap<C>::statistics() const {
  flush_left_lists();
  const Pool::Guard guard(*pool_);
  Statistics result = count_memory(*pool_);
  remote_frees_.each([&](const RemoteFreeBatch& batch) {
    result.remove_live(batch.count(), std::size_t{batch.count()} * batch.superblock->size);
  });
  if constexpr (C::kSecure) {
    quarantine_.each([&](Block* const& block) { result.remove_live(1, block_bytes(block)); });
  }
  cache_.each([&](std::size_t class_number, const Block*) {
    result.remove_live(1, Classes::bytes(class_number));
    result.cached_bytes += Classes::bytes(class_number);
  });
  const auto remove_list = [&](std::size_t class_number, const Block* block) {
    for (; block != nullptr; block = next_of<C>(*pool_, block)) {
      result.remove_live(1, Classes::bytes(class_number));
      result.cached_bytes += Classes::bytes(class_number);
    }
  };
  depot_.each(remove_list);
  owned_.freed_by_others().each(remove_list);
  return result;
}

}  // namespace heapwright::alloc
