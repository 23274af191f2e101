// How blocks go home when a front list is full, and what else happens to blocks that exist; see heap.h, which includes
// this.
#pragma once

namespace heapwright::alloc {

template <Configuration C>
void Heap<C>::flush_full_list(void* address) {
  const std::size_t number = load_shared(region().tag(address)) % (1U << kOwnerShift) / sizeof(FreeList);
  if (number == 0) {  // nothing of a class: the push did not count
    hot_.lists[0] = {};
    Fault fault{};
    if (!free_slow(address, fault)) {
      report(address, fault);
    }
    return;
  }
  flush_list(number, max_cached(number) / 4);
}

// Keeps the newest blocks of a front, or none if the program only frees, and gives the others back.
template <Configuration C>
void Heap<C>::flush_list(std::size_t number, std::int32_t keep) {
  FreeList& list = hot_.lists[number];
  const std::int32_t most = max_cached(number);
  Block* last = nullptr;  // that is kept
  Block* rest = list.head;
  std::int32_t length = 0;
  for (; length < keep && rest != nullptr; ++length) {
    last = rest;
    rest = next_of(rest);
  }
  const std::int32_t kept = length;
  for (const Block* block = rest; block != nullptr; block = next_of(block)) {
    if (++length > 2 * most) [[unlikely]] {  // longer than it can be: it bites its own tail
      const Block* const repeated = first_repeated(list.head);
      list = {nullptr, most, 0};
      report(repeated, Fault::kDoubleFree);
      return;
    }
  }
  if (length > list.flush_all_above) {
    rest = list.head;
    list.head = nullptr;
    list.flush_all_above = list.frees_left =
        std::min(most, std::max(static_cast<std::int32_t>(kMinCachedBlocks), most / 8));
  } else {
    if (last == nullptr) {
      list.head = nullptr;
    } else {
      set_next(last, nullptr);
    }
    list.frees_left = most - kept;
    list.flush_all_above = most;
  }
  return_blocks(rest);
}

// The first block that a list which has no end meets again.
template <Configuration C>
const Block* Heap<C>::first_repeated(const Block* first) const {
  std::size_t before = 0;
  for (const Block* block = first;; block = next_of(block), ++before) {
    const Block* earlier = first;
    for (std::size_t i = 0; i < before; ++i, earlier = next_of(earlier)) {
      if (earlier == block) {
        return block;
      }
    }
  }
}

// The blocks of a list go home, those that lie together at once.
template <Configuration C>
void Heap<C>::return_blocks(Block* block) {
  Block* foreign = return_own_blocks(block);
  while (foreign != nullptr) {
    Block* const next = next_of(foreign);
    free_remote(superblock_of(foreign), foreign);
    foreign = next;
  }
}

// Returns those that are another's.
template <Configuration C>
Block* Heap<C>::return_own_blocks(Block* block) {
  const Guard guard(*this);
  Block* foreign = nullptr;
  while (block != nullptr) {
    Superblock* const superblock = superblock_of(block);
    if (!owns(superblock) && !own_again(superblock)) {  // it was full, and another has it now
      Block* const next = next_of(block);
      set_next(block, foreign);
      foreign = block;
      block = next;
      continue;
    }
    const std::uintptr_t superblock_number = reinterpret_cast<std::uintptr_t>(block) >> kSuperblockShift;
    Block* chain = superblock->free;
    std::uint32_t count = superblock->free_count;
    do {
      Block* const next = next_of(block);
      if (!begins_block(superblock->reciprocal, block)) [[unlikely]] {
        report(block, Fault::kInterior);
      } else {
        set_next(block, chain);
        chain = block;
        ++count;
      }
      block = next;
    } while (reinterpret_cast<std::uintptr_t>(block) >> kSuperblockShift == superblock_number);
    superblock->free = chain;
    const std::uint32_t before = superblock->free_count;
    set_free_count(superblock, count);
    if (count > superblock->carved) [[unlikely]] {
      report(chain, Fault::kDoubleFree);
    }
    if (requeue_or_release(superblock)) {
      maybe_purge_pages(superblock, before);
    }
  }
  return foreign;
}

// A superblock of this heap has got blocks: it is queued, or free altogether.
// False: it was free altogether, and is gone.
template <Configuration C>
bool Heap<C>::requeue_or_release(Superblock* superblock) {
  // Only now the heap's: who tried to bring blocks home before has gone away again.
  bool mine = !superblock->queued;
  if (mine && superblock->free_count < superblock->carved) {
    queues_[superblock->number].push_front(superblock);  // what was freed last is the warmest
    become_owner(superblock);
  }
  while (superblock->free_count < superblock->carved && take_arrived(superblock, mine)) {
    mine = false;
  }
  if (superblock->free_count >= superblock->carved) {
    release(superblock);
    return false;
  }
  return true;
}

// The only way the number of free blocks of a superblock of this heap changes.
template <Configuration C>
void Heap<C>::set_free_count(Superblock* superblock, std::uint32_t count) {
  if (!superblock->current) {
    idle_bytes_ += (std::size_t{count} - superblock->free_count) * superblock->size;
  }
  store_shared(superblock->free_count, count);
}

template <Configuration C>
void Heap<C>::release(Superblock* superblock) {
  clear_current(superblock);
  if (superblock->queued) {
    queues_[superblock->number].remove(superblock);
    store_shared(superblock->queued, false);
  }
  set_free_count(superblock, 0);
  wipe_returned(superblock, 1);
  const Pool::Guard guard(*pool_);
  superblock->purged_pages = 0;
  __atomic_store_n(&region().tag(memory_of(superblock)), 0, __ATOMIC_RELAXED);
  region().give(superblock, 1);
}

template <Configuration C>
bool Heap<C>::free_slow(void* address, Fault& fault, [[maybe_unused]] FreedAs freed_as) {
  if (address == nullptr) {
    return true;
  }
  if (!region().contains(address)) {
    if constexpr (C::kSecure) {
      const Hardening::Mark mark = mark_of(address);
      if (mark.bytes != 0 && !mark.intact) {
        report(address, Fault::kOverrun);
        return true;
      }
      check(address, mark, freed_as);
    }
    const Pool::Guard guard(*pool_);
    if (pool_->large.free(address,
                          C::kSecure && pool_->quarantine_bytes != 0 ? pool_->hardening.random() | 1U : 0)) {
      after_large_change();
      for (std::size_t left = region().excess(); left > 0 && pool_->large.kept_bytes() > 0;) {
        const std::size_t dropped = pool_->large.drop_oldest();
        region().count_purged(dropped);
        after_large_change();
        left -= std::min(left, dropped / kSuperblockBytes);
      }
      return true;
    }
    fault = Fault::kForeign;
    return false;
  }
  Superblock* const superblock = superblock_of(address);
  const std::uint32_t tag = __atomic_load_n(&region().tag(address), __ATOMIC_RELAXED);
  if (const std::uint32_t offset = tag % (1U << kOwnerShift); offset != 0) {
    if constexpr (C::kSecure) {
      update_region_bounds();
      quarantine_block(address, freed_as);
      return true;
    }
    if (tag - offset != hot_.owner) {
      free_remote(superblock_of(address), static_cast<Block*>(address));
    } else if (!push(list_at(hot_.lists.data(), offset), address)) {
      update_region_bounds();  // that the fast path came here may mean that the region has grown
      flush_full_list(address);
    }
    return true;
  }
  if (index_in_chunk(superblock) != 0 && superblock->kind == Kind::kSpan &&
      memory_of(superblock) == address) {
    if constexpr (C::kSecure) {
      const Hardening::Mark mark = mark_of(address);
      if (!mark.intact) {
        report(address, Fault::kOverrun);
        return true;
      }
      if (!claim_span(superblock)) {
        report(address, Fault::kDoubleFree);
        return true;
      }
      check(address, mark, freed_as);
      wipe_returned(superblock, superblock->length);
      const Pool::Guard guard(*pool_);
      quarantine_span(superblock);
      return true;
    }
    const Pool::Guard guard(*pool_);
    region().give(superblock, superblock->length);
    return true;
  }
  const bool free = superblock->kind == Kind::kFree || superblock->kind == Kind::kQuarantined;
  fault = index_in_chunk(superblock) != 0 && free ? Fault::kDoubleFree : Fault::kInterior;
  return false;
}

template <Configuration C>
std::size_t Heap<C>::usable(const void* address) const {
  if constexpr (C::kSecure) {  // what was asked for: the mark stands behind it
    const Hardening::Mark mark = mark_of(address);
    return mark.intact ? mark.bytes : 0;
  }
  if (!region().contains(address)) {
    const Pool::Guard guard(*pool_);
    return pool_->large.usable(address);
  }
  const std::uint32_t tag = __atomic_load_n(&region().tag(address), __ATOMIC_RELAXED);
  if (const std::uint32_t offset = tag % (1U << kOwnerShift); offset != 0) {
    return kUsable[offset / sizeof(FreeList)];
  }
  const Superblock* const superblock = superblock_of(address);
  const bool span = index_in_chunk(superblock) != 0 && superblock->kind == Kind::kSpan;
  return span && memory_of(superblock) == address ? superblock->size : 0;
}

template <Configuration C>
void* Heap<C>::resize(void* address, std::size_t bytes) {
  Hardening::Mark mark{};
  if constexpr (C::kSecure) {
    mark = mark_of(address);
    if (!mark.intact) {
      return nullptr;
    }
    check(address, mark, {});
  }
  const Pool::Guard guard(*pool_);
  Large& large = pool_->large;
  if (!region().contains(address)) {
    if (bytes <= kLargestSpanBytes / 2 || bytes > PTRDIFF_MAX) {
      return nullptr;
    }
    const std::size_t others = region().bytes() + large.bytes() - large.usable(address);
    if (others + bytes > region().settings.limit_bytes) {
      return nullptr;
    }
    void* const block = large.resize(address, bytes);
    if (C::kSecure && block != nullptr) {
      large.describe(block, bytes, mark.origin, pool_->hardening);
    }
    after_large_change();
    return block;
  }
  const std::uint32_t tag = __atomic_load_n(&region().tag(address), __ATOMIC_RELAXED);
  if (const std::uint32_t offset = tag % (1U << kOwnerShift); offset != 0) {
    if (!fits_in_place(kUsable[offset / sizeof(FreeList)], bytes)) {
      return nullptr;
    }
    if constexpr (C::kSecure) {
      pool_->hardening.write_mark(address, superblock_of(address)->size, bytes, mark.origin);
    }
    return address;
  }
  Superblock* const superblock = superblock_of(address);
  const bool span = index_in_chunk(superblock) != 0 && superblock->kind == Kind::kSpan;
  if (bytes <= kLargestClassBytes || bytes > kLargestSpanBytes || !span || memory_of(superblock) != address) {
    return nullptr;
  }
  const std::size_t wanted = superblocks_for(bytes);
  const std::size_t length = superblock->length;
  if (wanted > length) {
    if (!region().grow(superblock, length, wanted)) {
      return nullptr;
    }
  } else if (wanted < length) {
    wipe_returned(superblock + wanted, length - wanted);
    region().give(superblock + wanted, length - wanted);
  }
  join(superblock, wanted, span_size(bytes));
  mark_span(superblock, bytes, mark.origin);
  return address;
}

template <Configuration C>
void Heap<C>::set_cache_bytes(std::size_t bytes) {
  flush_cache();
  cache_bytes_per_class_ = bytes;
  for (std::size_t number = 1; number < Classes::kCount; ++number) {
    hot_.lists[number].frees_left = max_cached(number);
  }
}

template <Configuration C>
void Heap<C>::flush_cache() {
  empty_quarantine();
  for (std::size_t number = 1; number < Classes::kCount; ++number) {
    flush_list(number, 0);
  }
}

template <Configuration C>
bool Heap<C>::trim() {
  flush_cache();
  drain_remote();
  const Pool::Guard guard(*pool_);
  if constexpr (C::kSecure) {
    for (Superblock* span = pool_->quarantined_spans.evict(0); span != nullptr;
         span = pool_->quarantined_spans.evict(0)) {
      return_span(span);
    }
    pool_->large.empty_quarantine();
  }
  bool any = region().purge_all();
  while (pool_->large.drop_oldest() > 0) {
    any = true;
  }
  after_large_change();
  return any;
}

template <Configuration C>
void Heap<C>::after_large_change() {
  region().large_bytes = pool_->large.bytes();
  region().kept_bytes = pool_->large.kept_bytes();
  region().purge_excess();
}

template <Configuration C>
Statistics Heap<C>::statistics() const {
  const Pool::Guard guard(*pool_);
  const Large& large = pool_->large;
  Statistics result{region().statistics(), large.bytes(), large.count(), large.bytes(), 0, 0};
  for (Superblock* s = region().next_used(nullptr); s != nullptr; s = region().next_used(s)) {
    const Kind kind = kind_of(s);
    if (kind == Kind::kBlocks) {  // its owner may be changing it: what is found is near the truth
      const std::size_t carved = load_shared(s->carved);
      const std::size_t free =
          load_shared(s->free_count) + (pool_->threaded ? RemoteQueue::of(s).count() : 0);
      const std::size_t live = carved - std::min(free, carved);
      result.live_blocks += live;
      result.live_bytes += live * load_shared(s->size);
    } else if (kind == Kind::kSpan) {
      result.live_bytes += s->size;
    }
  }
  for (const RemoteFreeBatch& batch : batches_) {
    if (batch.superblock != nullptr) {
      result.live_blocks -= batch.count;
      result.live_bytes -= std::size_t{batch.count} * batch.superblock->size;
    }
  }
  if constexpr (C::kSecure) {
    quarantine_.each([&](std::size_t bytes) {
      --result.live_blocks;
      result.live_bytes -= bytes;
    });
  }
  for (std::size_t number = 1; number < Classes::kCount; ++number) {
    for (const Block* block = hot_.lists[number].head; block != nullptr; block = next_of(block)) {
      --result.live_blocks;
      result.live_bytes -= Classes::bytes(number);
      result.cached_bytes += Classes::bytes(number);
    }
  }
  return result;
}

}  // namespace heapwright::alloc
