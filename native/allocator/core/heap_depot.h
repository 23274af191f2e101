// Handles the lists that leave a heap's thread cache: keeps them in the depot, or returns their
// blocks to superblocks; and likewise freed spans. It also shrinks the heap's own depot, and empties
// the depots of threads that sleep.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "heap.h"
#include "idle_memory.h"
#include "return_blocks.h"
#include "take_blocks.h"

namespace heapwright::alloc {

template <Configuration C>
void Heap<C>::flush_cache() {
  if constexpr (C::kSecure) {
    quarantine_.evict_all(0, [this](Block* old) { reuse_block(old); });
  }
  for (std::size_t class_number = 1; class_number < Classes::kCount; ++class_number) {
    if (const BlockChain list = cache_.take_all(class_number); list.first != nullptr) {
      return_list(list);
    }
  }
  empty_depot();
  owned_.after_flush();
  depot_limit_.reset();
  span_limit_.reset();
  depot_.close_bounds();
}

// Estimates in how many superblocks a list's blocks lie, from the first sixteen: further blocks lie in
// other superblocks as often as the latter eight. Superblocks whose numbers are equal modulo 64 count
// once. 0: these blocks form a cycle, made by a double free.
template <Configuration C>
[[gnu::noinline]] std::size_t estimated_superblocks(const Pool& pool, BlockChain list) {
  constexpr std::size_t kHalf = 8;
  std::uint64_t seen = 0;  // a bit for each superblock
  std::size_t superblocks = 0;
  const Block* block = list.first;
  const auto look = [&] {
    const std::uint64_t bit = std::uint64_t{1}
                              << (reinterpret_cast<std::uintptr_t>(block) >> kSuperblockShift) % 64;
    superblocks += (seen & bit) == 0 ? 1 : 0;
    seen |= bit;
    block = next_of<C>(pool, block);
  };
  for (std::size_t i = 0; i < kHalf && block != nullptr; ++i) {
    look();
  }
  const Block* const middle = block;
  const std::size_t in_first_half = superblocks;
  for (std::size_t i = 0; i < kHalf && block != nullptr; ++i) {
    look();
    if (block == middle) {
      return 0;
    }
  }
  if (block == nullptr || list.count <= 2 * kHalf) {
    return superblocks;
  }
  return superblocks + (superblocks - in_first_half) * (list.count - 2 * kHalf) / kHalf;
}

// Counts what lists keep in use: the blocks of each list, at least kCacheBytesPerClass; and 64 KiB for
// each superblock that refills have used up since the last flush, because one of its blocks may be in a
// list, and for further superblocks in which the first blocks of a list lie.
template <Configuration C>
std::size_t Heap<C>::bytes_to_leave() {
  if (C::kSecure || moved_lists_ > kFewLists) {
    return SIZE_MAX;
  }
  std::size_t bytes = depot_.shared_bytes() + owned_.used_up() * kSuperblockBytes;
  bool has_cycle = false;
  const auto count = [&](std::size_t class_number, BlockChain list) {
    const std::size_t superblocks = estimated_superblocks<C>(*pool_, list);
    has_cycle = has_cycle || superblocks == 0;
    bytes += std::max(list.count * kUsableBytes<C>[class_number], C::kCacheBytesPerClass) +
             (superblocks - 1) * kSuperblockBytes;
  };
  cache_.each_list(count);
  depot_.each_private(count);
  return has_cycle ? SIZE_MAX : bytes;
}

// Returns whether the first blocks of a list lie in many superblocks: they were freed in random
// order.
inline bool is_scattered(BlockChain list) {
  std::size_t changes = 0;
  const Block* block = list.first;
  for (int i = 0; i < 8 && block->next != nullptr; ++i, block = block->next) {
    changes += (reinterpret_cast<std::uintptr_t>(block) ^ reinterpret_cast<std::uintptr_t>(block->next)) >>
                           kSuperblockShift !=
                       0
                   ? 1
                   : 0;
  }
  return changes >= 4;
}

// Puts a list that has left the thread cache into the depot. `list` is empty if the thread cache
// keeps it.
template <Configuration C>
void Heap<C>::store_list(std::size_t class_number, BlockChain list) {
  ++moved_lists_;
  if (++seen_lists_ % kListsPerLook == 0) [[unlikely]] {
    return_idle_memory();
  }
  if (list.first == nullptr) {
    return;
  }
  const bool small = Classes::bytes(class_number) < kMinPurgedBytes;
  auto how = OwnedSuperblocks<C>::Returned::kInRuns;
  if constexpr (C::kSecure) {  // they come from quarantine, in random order
    return_list(list, owned_, small ? OwnedSuperblocks<C>::Returned::kScattered : how);
    return;
  }
  // A list longer than this heap's own allocations account for has mostly blocks of other threads.
  bool returns =
      estimated_count(list) > obtained_[class_number] + 2 * std::int64_t{cache_.max_blocks(class_number)};
  if (small && is_scattered(list)) {
    if (scattered_[class_number] || load_shared(superblock_of(list.first)->shared) ||
        depot_.bytes() > kMaxScatteredDepot) {
      scattered_[class_number] = returns = true;
      how = OwnedSuperblocks<C>::Returned::kScattered;
    }
  } else {
    scattered_[class_number] = false;
  }
  ++stored_lists_;
  const bool bits_detect_double_frees = how == OwnedSuperblocks<C>::Returned::kScattered;
  if (!bits_detect_double_frees && (stored_lists_ <= kListsChecked || stored_lists_ % kListsPerCheck == 0)) {
    list = check_list<C>(*pool_, list);
    if (list.first == nullptr) {
      return;
    }
  }
  if (returns) {
    return_list(list, owned_, how);
    empty_depot(class_number);
    return;
  }
  obtained_[class_number] -= estimated_count(list);
  const bool looks = depot_limit_.may_fall() && stored_lists_ % kListsPerDecision == 0;
  if ((looks || !depot_limit_.allows(depot_.bytes())) && !make_room()) [[unlikely]] {
    depot_limit_.add_refused(class_number, estimated_count(list));
    return_list(list);
    return;
  }
  depot_.push(class_number, list, pool_->threaded);
  if (stored_lists_ % kListsPerCheck == 0 && pool_->has_depots()) {
    shrink_idle_depot();
  }
}

// superblocks_for() may overflow above kLargestSpanBytes. Hardened builds keep their freed spans in
// quarantine.
template <Configuration C>
HEAPWRIGHT_INLINE void* Heap<C>::allocate_freed_span(std::size_t bytes) {
  if (C::kSecure || bytes > kLargestSpanBytes) {
    return nullptr;
  }
  const std::size_t length = BigBlocks<C>::superblocks_for(bytes);
  Superblock* span = nullptr;
  if (!is_threaded()) {
    span = region().take_span_quickly(length);
  } else {
    span = depot_.pop_quickly(length);
  }
  return span != nullptr ? BigBlocks<C>::use_again(span, bytes) : nullptr;
}

// The same where the fast path does not find a span.
template <Configuration C>
Superblock* Heap<C>::pop_span(std::size_t length) {
  depot_.count_move();
  Superblock* const span = depot_.pop_span(length);
  if (span != nullptr) {
    span_limit_.after_pop(depot_.span_superblocks());
  }
  set_span_bounds();
  return span;
}

template <Configuration C>
HEAPWRIGHT_INLINE bool Heap<C>::finish_free_fast(FreeResult freed, void* address) {
  const std::size_t offset = cache_.offset_in_region(address);
  if (C::kSecure || offset >= cache_.limit()) {
    return false;
  }
  const std::uint32_t tag = cache_.tag_at(offset);
  if (const std::uint32_t list = list_offset(tag); list != 0) {
    if (freed == FreeResult::kListFull) {
      store_list(class_of_tag(tag), cache_.take_full(class_of_tag(tag)));
      return true;
    }
    if (freed == FreeResult::kNoBatch && tag - list != cache_.owner()) {
      free_remote_slow(tag, static_cast<Block*>(address));
      return true;
    }
    return false;
  }
  Superblock* const span = superblock_of(address);
  if (!begins_span(span, address)) {
    return false;
  }
  cache_.reset_list_of_no_class();
  if (!is_threaded()) {
    if (!region().give_span_quickly(span)) {
      region().give_span(span);
    }
  } else if (seen_spans_ % kSpansPerLook == 0 || !depot_.push_quickly(span)) {
    keep_or_give_span(span);
  } else {
    ++seen_spans_;
  }
  return true;
}

// Puts a freed span into the depot, or returns it to the region.
template <Configuration C>
void Heap<C>::keep_or_give_span(Superblock* span) {
  set_kind(span, Kind::kHeldBack);  // before another thread can take it
  if (!keep_span(span)) {
    span->next = nullptr;
    big_.give_spans(span);
  }
}

// Puts a freed span into the depot. Returns false if the depot does not take it: it is full, or the
// thread frees more spans than it allocates.
template <Configuration C>
bool Heap<C>::keep_span(Superblock* span) {
  depot_.count_move();
  if (seen_spans_++ % kSpansPerLook == 0) [[unlikely]] {
    return_idle_memory();
    bias_depot();
  }
  const std::size_t length = span->length;
  if (length > Depot<C>::kLongestSpan || !depot_.has_allocated(length)) {
    return false;
  }
  if (!span_limit_.allows(depot_.span_superblocks() + length)) [[unlikely]] {
    if (span_limit_.add_refused()) {
      decide_span_limit();
    }
    if (!span_limit_.allows(depot_.span_superblocks() + length)) {
      depot_.add_obtained(-static_cast<std::int64_t>(length));
      return false;
    }
  }
  if (!pool_->has_joined(depot_)) [[unlikely]] {
    {
      const Pool::Guard guard(*pool_);
      pool_->join(depot_);
    }
    bias_depot();
  }
  depot_.push_span(span);
  set_span_bounds();
  return true;
}

template <Configuration C>
void Heap<C>::set_span_bounds() {
  if (pool_->has_joined(depot_)) {
    depot_.set_bounds(span_limit_.low(), span_limit_.superblocks());
  }
}

template <Configuration C>
void Heap<C>::bias_depot() {
  if (!depot_.is_biased()) {
    const Pool::Guard guard(*pool_);
    pool_->bias(depot_);
  }
}

// Decides anew how many spans the depot may hold. If it holds far more, all return to the region.
template <Configuration C>
void Heap<C>::decide_span_limit() {
  {
    const Pool::Guard guard(*pool_);
    span_limit_.update(*pool_, depot_.span_superblocks());
  }
  const std::size_t superblocks = depot_.span_superblocks();
  if (!span_limit_.allows(superblocks - superblocks / 5)) {
    big_.give_spans(depot_.take_all_own_spans());
  }
  set_span_bounds();
}

// Returns the spans in a depot, or in all depots, to the region. Returns whether there were any.
template <Configuration C>
bool Heap<C>::reclaim_spans(DepotRecord* only) {
  const Pool::Guard guard(*pool_);
  pool_->end_bias(depot_, only);
  Superblock* all = nullptr;
  pool_->each_depot([&](DepotRecord& record) {
    auto& depot = static_cast<Depot<C>&>(record);
    if ((only != nullptr && &record != only) || (&depot != &depot_ && !Pool::may_take_spans(depot))) {
      return;
    }
    for (Superblock* span = depot.take_all_spans(); span != nullptr;) {
      Superblock* const next = std::exchange(span->next, all);
      all = span;
      span = next;
    }
  });
  big_.return_spans(all);
  return all != nullptr;
}

// Called when the depot is full, and now and then while its limit is raised: makes room for a list,
// or returns false. A full depot stays as it is, unless its limit has fallen: then half of it
// returns.
template <Configuration C>
bool Heap<C>::make_room() {
  const std::size_t bytes = depot_.bytes();
  {
    const Pool::Guard guard(*pool_);
    depot_limit_.update(*pool_, bytes, bytes + owned_.purger().idle_bytes());
    if (pool_->threaded) {
      pool_->join(depot_);
    }
  }
  if (depot_limit_.is_far_below(bytes)) {
    for (std::size_t class_number = 1; class_number < Classes::kCount; ++class_number) {
      depot_.halve(class_number, [this](BlockChain list) { return_list(list); });
    }
  }
  return depot_limit_.allows(depot_.bytes());
}

// Empties the depot of a thread that sleeps, unless purging is throttled. A thread that waits for a
// processor does not sleep. So a depot with more than its share must be still for kIdleMs, any other
// for StillCursor::kStillMs.
template <Configuration C>
void Heap<C>::shrink_idle_depot() {
  DepotRecord* idle = nullptr;
  {
    const Pool::Guard guard(*pool_);
    const std::size_t share = pool_->depot_share();
    idle = share != SIZE_MAX
               ? pool_->find_idle_depot(depot_, std::max(DepotLimit<C>::kMinBytes, share), kIdleMs)
               : nullptr;
  }
  if (idle != nullptr) {
    empty_depot_of(*idle);
  }
}

// Called before this heap obtains `bytes` from the region. If that needs new memory, it returns the
// spans of all depots to the region. If it still does, it empties its depot if that holds much,
// else the depot of a thread that sleeps. Blocks of superblocks that other heaps own are sent at
// once: they may be the last of these superblocks.
template <Configuration C>
void Heap<C>::empty_own_or_idle_depot(std::size_t bytes) {
  if (region().lends() && needs_new_memory(bytes)) {
    reclaim_spans();
  }
  DepotRecord* idle = nullptr;
  {
    const Pool::Guard guard(*pool_);
    if (!pool_->region.needs_new_memory(bytes)) {
      return;
    }
    const std::size_t much = pool_->region.statistics().used_bytes / 32;
    if (depot_.bytes() <= std::max(much, DepotLimit<C>::kMinBytes)) {
      idle = pool_->find_idle_depot(depot_, std::max(much / pool_->heaps(), DepotLimit<C>::kMinBytes));
      if (idle == nullptr) {
        return;
      }
    }
  }
  if (idle != nullptr) {
    empty_depot_of(*idle);
  } else {
    empty_depot();
  }
  drain_remote();
}

// Returns all blocks to their superblocks that another heap's depot shares or that threads have
// freed for it, and all spans of the depot to the region.
template <Configuration C>
void Heap<C>::empty_depot_of(DepotRecord& record) {
  auto& depot = static_cast<Depot<C>&>(record);
  OwnedSuperblocks<C>& superblocks = depot.superblocks();
  const auto return_all = [&](BlockChain list) {
    return_list(list, superblocks, OwnedSuperblocks<C>::Returned::kForOwner);
  };
  depot.take_all_shared(return_all);
  if (depot.span_superblocks() != 0) {
    reclaim_spans(&record);
  }
  superblocks.freed_by_others().take_all(return_all);
}

template <Configuration C>
void Heap<C>::empty_depot() {
  for (std::size_t class_number = 1; class_number < Classes::kCount; ++class_number) {
    empty_depot(class_number);
  }
  big_.give_spans(depot_.take_all_own_spans());
}
template <Configuration C>
void Heap<C>::empty_depot(std::size_t class_number) {
  for (BlockChain list = depot_.pop(class_number); list.first != nullptr; list = depot_.pop(class_number)) {
    return_list(list);
  }
  if (class_number >= FreedByOthers<C>::kFirstClass) {
    if (const BlockChain list = owned_.freed_by_others().take(class_number); list.first != nullptr) {
      return_list(list);
    }
  }
}

// Returns the blocks of a list to their superblocks; blocks of other heaps go to batches.
template <Configuration C>
void Heap<C>::return_list(BlockChain list, OwnedSuperblocks<C>& owner,
                          typename OwnedSuperblocks<C>::Returned how) {
  for (Block* remote = owner.return_blocks(list, how); remote != nullptr;) {
    Block* const next = next_of<C>(*pool_, remote);
    remote_frees_.free(superblock_of(remote), remote);
    remote = next;
  }
}

}  // namespace heapwright::alloc
