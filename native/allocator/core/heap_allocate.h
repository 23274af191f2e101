// How Heap gets blocks when a front list is empty, and everything that is not of a size class; see heap.h, which
// includes this.
#pragma once

namespace heapwright::alloc {

template <Configuration C>
void* Heap<C>::allocate_slow(std::size_t bytes, bool zero) {
  zeroed_block_ = nullptr;
  if (bytes <= kLargestClassBytes - kExtra) {
    return allocate_class(Classes::of(bytes + kExtra), bytes);
  }
  if (bytes <= kLargestSpanBytes) {
    if (void* const span = allocate_span(bytes); span != nullptr) {
      return span;
    }
  }
  return allocate_large(bytes, 1, zero);
}

template <Configuration C>
void* Heap<C>::allocate_large(std::size_t bytes, std::size_t alignment, bool zero) {
  if (bytes >= kAddresses || alignment >= kAddresses) {  // no memory that is given back makes room for that
    return nullptr;
  }
  for (int tries = 0; tries < 2; ++tries) {
    if (tries == 1) {  // what is free may hold the address space or the limit that is missing
      trim();
      const Pool::Guard guard(*pool_);
      region().shrink();
      update_region_bounds();
    }
    const Pool::Guard guard(*pool_);
    start_hardening();
    if (region().bytes() + pool_->large.bytes() + pool_->large.kept_bytes() + bytes <=
        region().settings.limit_bytes) {
      void* const block = pool_->large.allocate(bytes, alignment, zero);
      if (block != nullptr) {
        if constexpr (C::kSecure) {
          pool_->large.describe(block, std::max(bytes, std::size_t{1}), Origin::kMalloc, pool_->hardening);
        }
        zeroed_block_ = pool_->large.last_was_clean() ? block : nullptr;
        if (zeroed_block_ != nullptr) {
          region().count_reused(bytes);
        }
        after_large_change();
        return block;
      }
    }
  }
  return nullptr;
}

template <Configuration C>
void* Heap<C>::allocate_aligned(std::size_t bytes, std::size_t alignment) {
  if (alignment <= Classes::kGranule) {
    return allocate_slow(bytes);
  }
  if (bytes <= kLargestClassBytes - kExtra && alignment <= kSuperblockBytes) {
    if (const std::size_t number = Classes::aligned(bytes + kExtra, alignment); number != 0) {
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
void* Heap<C>::allocate_class(std::size_t number, std::size_t bytes) {
  FreeList& list = hot_.lists[number];
  if (list.head == nullptr) {
    if (started_ >= drain_at_) {
      started_ = 0;
      drain_remote();
    }
    list.head = refill(number);
    if (list.head == nullptr) {
      trim();  // other fronts may hold the last block of a superblock
      list.head = refill(number);
    }
    if (list.head == nullptr) {
      return nullptr;
    }
  }
  Block* const block = list.head;
  list.head = next_of(block);
  return hand_out(block, bytes);
}

template <Configuration C>
void* Heap<C>::allocate_span(std::size_t bytes) {
  const std::size_t count = superblocks_for(bytes);
  const Pool::Guard guard(*pool_);
  start_hardening();
  Superblock* const first = region().take(count);
  update_region_bounds();
  if (first == nullptr) {
    return nullptr;
  }
  join(first, count, span_size(bytes));
  void* const block = memory_of(first);
  if constexpr (C::kSecure) {
    constexpr std::size_t kLooked =
        kSuperblockBytes;  // of a long one, as much as of the longest with a class
    if (pool_->hardening.wipes && !Hardening::is_wiped(block, std::min(kLooked, std::size_t{first->size}))) {
      report(block, Fault::kWriteAfterFree);
    }
    mark_span(first, std::max(bytes, std::size_t{1}), Origin::kMalloc);
  }
  zeroed_block_ = region().last_was_clean() ? block : nullptr;
  return block;
}

// Before a process has its first memory, whatever kind that is: no block, and so no link, has been made yet.
template <Configuration C>
void Heap<C>::start_hardening() {
  if constexpr (C::kSecure) {
    if (!pool_->large.guards) {
      pool_->hardening.start();
      region().settings.guards = pool_->large.guards = true;
    }
  }
}

// The region may have begun or grown: free() must know how far it reaches.
template <Configuration C>
void Heap<C>::update_region_bounds() {
  hot_.base = region().base();
  hot_.limit = region().bytes();
}

// Linked blocks for a front; nullptr: out of memory. As long as the current superblock has some, no lock is taken: a
// locked instruction waits until all the program has written before has reached its cache.
template <Configuration C>
Block* Heap<C>::refill(std::size_t number) {
  Superblock* superblock = current_[number];
  if (superblock != nullptr && has_blocks(superblock)) {
    return take_batch(superblock);
  }
  const Guard guard(*this);
  if (superblock != nullptr) {
    disown(superblock);
  }
  superblock = queues_[number].first;
  if (superblock == nullptr) {
    superblock = start_superblock(number);
    if (superblock == nullptr) {
      return nullptr;
    }
  }
  make_current(superblock);
  Block* const first = take_batch(superblock);
  if (!has_blocks(superblock)) {
    disown(superblock);
  }
  return first;
}

template <Configuration C>
bool Heap<C>::has_blocks(const Superblock* superblock) {
  return superblock->free != nullptr || superblock->carved < superblock->capacity ||
         superblock->purged_pages != 0;
}

// Half a front's worth of the current superblock's blocks, or all it has if a front can hold them: then nobody walks the
// list, whose links may be in no cache.
template <Configuration C>
Block* Heap<C>::take_batch(Superblock* superblock) {
  if (superblock->free == nullptr && superblock->purged_pages != 0) {
    reuse_purged_pages(superblock);
  }
  const auto most = static_cast<std::size_t>(max_cached(superblock->number));
  const std::size_t batch = std::max(most / 2, std::size_t{1});
  std::size_t count = 0;
  if (superblock->free == nullptr && pool_->threaded && RemoteQueue::of(superblock).count() >= batch) {
    add_taken(superblock,
              RemoteQueue::of(superblock).take(superblock));  // rather than memory not yet touched
  }
  Block* first = superblock->free;
  if (first == nullptr) {
    first = carve(superblock, C::kSecure ? std::max(batch, kShuffled) : batch, count);
  } else if (superblock->free_count <= most && superblock->purged_pages == 0) {
    count = superblock->free_count;
    superblock->free = nullptr;
    set_free_count(superblock, 0);
  } else {
    split_free_blocks(superblock, batch, count);
  }
  FreeList& list = hot_.lists[superblock->number];
  list.frees_left = static_cast<std::int32_t>(most - std::min(count, batch));
  list.flush_all_above = INT32_MAX;
  return first;
}

template <Configuration C>
void Heap<C>::make_current(Superblock* superblock) {
  idle_bytes_ -= std::size_t{superblock->free_count} * superblock->size;
  superblock->current = true;
  current_[superblock->number] = superblock;
}

template <Configuration C>
void Heap<C>::clear_current(Superblock* superblock) {
  if (superblock->current) {
    superblock->current = false;
    current_[superblock->number] = nullptr;
    idle_bytes_ += std::size_t{superblock->free_count} * superblock->size;
  }
}

template <Configuration C>
Superblock* Heap<C>::start_superblock(std::size_t number) {
  ++started_;
  Superblock* superblock = nullptr;
  {
    const Pool::Guard guard(*pool_);
    start_hardening();
    superblock = region().take(1, static_cast<std::uint8_t>(number));
    update_region_bounds();
  }
  if (superblock == nullptr) {
    return nullptr;
  }
  const std::size_t size = Classes::bytes(number);
  superblock->free = nullptr;
  store_shared(superblock->free_count, 0U);
  store_shared(superblock->carved, 0U);
  superblock->capacity = static_cast<std::uint32_t>(kSuperblockBytes / size);
  store_shared(superblock->size, static_cast<std::uint32_t>(size));
  superblock->reciprocal =
      static_cast<std::uint32_t>(((std::uint64_t{1} << 32U) + size / 16 - 1) / (size / 16));
  superblock->number = static_cast<std::uint8_t>(number);
  superblock->current = false;
  set_kind(superblock, Kind::kBlocks);
  if (pool_->threaded) {
    RemoteQueue::of(superblock).reset();
  }
  become_owner(superblock);
  queues_[number].push_front(superblock);
  return superblock;
}

// Blocks never handed out: at most to the end of a page, so that no page is touched before it is needed.
template <Configuration C>
Block* Heap<C>::carve(Superblock* superblock, std::size_t most, std::size_t& count) {
  const std::size_t size = superblock->size;
  const std::size_t begin = superblock->carved * size;
  const std::size_t page_end = round_up(begin + 1, platform::page_size());
  const std::size_t to_page_end = std::max((page_end - begin) / size, kShuffled);
  const std::size_t left = superblock->capacity - superblock->carved;
  count = std::min({most, to_page_end, left});
  char* const first = memory_of(superblock) + begin;
  store_shared(superblock->carved, superblock->carved + static_cast<std::uint32_t>(count));
  if constexpr (C::kSecure) {
    return carve_shuffled(first, size, count);
  }
  for (std::size_t i = 0; i + 1 < count; ++i) {
    set_next(reinterpret_cast<Block*>(first + i * size), reinterpret_cast<Block*>(first + (i + 1) * size));
  }
  set_next(reinterpret_cast<Block*>(first + (count - 1) * size), nullptr);
  return reinterpret_cast<Block*>(first);
}

template <Configuration C>
Block* Heap<C>::carve_shuffled(char* first, std::size_t size, std::size_t count) {
  if constexpr (C::kSecure) {
    std::array<std::uint16_t, C::kCacheBlocksPerClass> order{};
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t j = pool_->hardening.random_below(i + 1);
      order[i] = order[j];
      order[j] = static_cast<std::uint16_t>(i);
    }
    Block* head = nullptr;
    for (std::size_t i = 0; i < count; ++i) {
      auto* const block = reinterpret_cast<Block*>(first + order[i] * size);
      set_next(block, head);
      head = block;
    }
    return head;
  }
  return nullptr;
}

// The first of a superblock's free blocks.
template <Configuration C>
void Heap<C>::split_free_blocks(Superblock* superblock, std::size_t most, std::size_t& count) {
  Block* last = superblock->free;
  Block* next = next_of(last);
  for (count = 1; count < most && next != nullptr; ++count) {
    last = next;
    next = next_of(last);
  }
  superblock->free = next;
  set_free_count(superblock, superblock->free_count - static_cast<std::uint32_t>(count));
  set_next(last, nullptr);
}

}  // namespace heapwright::alloc
