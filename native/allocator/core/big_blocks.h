// Allocates and frees blocks above the largest size class: spans of superblocks up to 1 MiB, and
// large blocks with a mapping of their own.
//
// A block up to 63 superblocks also becomes a span, or stays one when it grows, if free superblocks
// hold memory for it: otherwise a program that frees small blocks and then allocates large ones
// would touch new memory. Hardened builds give each such block a mapping, with a guard page.
//
// These blocks belong to no heap: the functions work on the pool and take its lock. With several
// threads a heap keeps freed spans in its depot, and uses them again without the lock. After a call
// a heap must call ThreadCache::update_region_bounds(), because the region may have begun or grown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "block_marks.h"
#include "inlining.h"

namespace heapwright::alloc {

template <Configuration C>
class BigBlocks {
 public:
  constexpr explicit BigBlocks(Pool& pool) : pool_(&pool) {}

  struct Allocated {
    void* block = nullptr;    // nullptr: out of memory
    bool reads_zero = false;  // not used since the kernel gave it
  };
  // Allocates a span for at most kLargestSpanBytes. It is aligned to a superblock. `may_grow`:
  // otherwise it allocates none if the region would need new memory while it lends some, or if memory
  // in use would exceed its peak. First it returns the spans in `freed`, linked, to the region.
  Allocated allocate_span(std::size_t bytes, bool may_grow = true, Superblock* freed = nullptr);
  // How many superblocks a span for `bytes` has.
  static std::size_t superblocks_for(std::size_t bytes) {
    return std::max((bytes + kCanaryBytes + kSuperblockBytes - 1) / kSuperblockBytes, std::size_t{1});
  }
  // Makes a freed span one for a block of `bytes`, which needs as many superblocks.
  HEAPWRIGHT_INLINE static void* use_again(Superblock* span, std::size_t bytes);
  // Returns freed spans, linked, to the region.
  void give_spans(Superblock* spans);
  // Likewise; the caller holds the pool's lock.
  void return_spans(Superblock* spans);
  // Allocates a mapping, or a span that needs no new memory. `alignment` is a power of two.
  Allocated allocate_large(std::size_t bytes, std::size_t alignment);
  // Frees a block whose address lies in the region and whose tag is 0. Returns false if no block
  // begins there; `fault` then says what is wrong. If the process has threads, it calls
  // keeps(span); where that returns true, the heap has kept the span, and another thread may have
  // taken it since.
  template <class F>
  bool free_span(void* address, Fault& fault, FreedAs freed_as, F keeps);
  // Frees a block outside the region, likewise.
  bool free_large(void* address, Fault& fault, FreedAs freed_as);
  // Returns the usable bytes of a span or a large block, or 0 if none begins at `address`.
  [[nodiscard]] std::size_t usable(const void* address) const;
  // Resizes a span in place, or a large block by its mapping, which may move. Returns nullptr if
  // neither is possible: the caller copies. `origin`: what the resized block's mark says.
  void* resize(void* address, std::size_t bytes, Origin origin);
  // Returns all free memory to the kernel. Returns whether there was any.
  bool trim();
  // Returns to the kernel the address space that is free at the end of the region.
  void shrink_region() {
    const Pool::Guard guard(*pool_);
    pool_->shrink_region();
  }

 private:
  // Bytes of a span that the program does not get: the canary of a hardened build.
  static constexpr std::size_t kCanaryBytes = C::kSecure ? Hardening::kEndBytes : 0;
  // The bytes of a span that the program may use: whole pages.
  static std::size_t span_size(std::size_t bytes, std::size_t page = platform::page_size()) {
    return round_up(std::max(bytes + kCanaryBytes, std::size_t{1}), page);
  }
  HEAPWRIGHT_COLD Superblock* span_in_memory(std::size_t bytes, std::size_t alignment);
  bool claim_span(Superblock* span);
  void quarantine_span(Superblock* span);
  void release_from_quarantine(Superblock* span);

  Pool* pool_;
};

template <Configuration C>
typename BigBlocks<C>::Allocated BigBlocks<C>::allocate_span(std::size_t bytes, bool may_grow,
                                                             Superblock* freed) {
  const std::size_t count = superblocks_for(bytes);
  const Pool::Guard guard(*pool_);
  if constexpr (C::kSecure) {
    pool_->start_hardening();
  }
  return_spans(freed);
  if (!may_grow && pool_->region.needs_new_memory(bytes)) {
    return {};
  }
  if constexpr (!C::kSecure) {  // a hardened build has freed spans in quarantine
    if (Superblock* const span = pool_->region.take_span(count); span != nullptr) {
      return {use_again(span, bytes), false};
    }
  }
  Region& region = pool_->region;
  Superblock* const first = !may_grow && region.lends() ? region.take_dirty(count) : region.take(count);
  if (first == nullptr) {
    return {};
  }
  join(first, count, span_size(bytes));
  void* const block = memory_of(first);
  if constexpr (C::kSecure) {
    // Of a long span only as much is checked as of the longest block with a class.
    if (pool_->hardening.wipes &&
        !Hardening::is_wiped(block, std::min(kSuperblockBytes, std::size_t{first->size}))) {
      pool_->report(block, Fault::kWriteAfterFree);
    }
    mark_span<C>(*pool_, first, std::max(bytes, std::size_t{1}), Origin::kMalloc);
  }
  return {block, pool_->region.last_was_clean()};
}

template <Configuration C>
void* BigBlocks<C>::use_again(Superblock* span, std::size_t bytes) {
  // The region asked before it made its first chunk.
  const std::size_t page = __atomic_load_n(&platform::known_page_size, __ATOMIC_RELAXED);
  store_shared(span->size, static_cast<std::uint32_t>(span_size(bytes, page)));
  set_kind(span, Kind::kSpan);
  return memory_of(span);
}

template <Configuration C>
void BigBlocks<C>::give_spans(Superblock* spans) {
  if (spans == nullptr) {
    return;
  }
  const Pool::Guard guard(*pool_);
  return_spans(spans);
}

template <Configuration C>
void BigBlocks<C>::return_spans(Superblock* spans) {
  while (spans != nullptr) {
    Superblock* const next = spans->next;
    pool_->region.give_span(spans);
    spans = next;
  }
}

template <Configuration C>
typename BigBlocks<C>::Allocated BigBlocks<C>::allocate_large(std::size_t bytes, std::size_t alignment) {
  const Pool::Guard guard(*pool_);
  if constexpr (C::kSecure) {
    pool_->start_hardening();
  }
  Region& region = pool_->region;
  Large& large = region.large;
  if (region.mapped_bytes() + bytes > region.settings.limit_bytes) {
    return {};
  }
  if (Superblock* const span = span_in_memory(bytes, alignment); span != nullptr) {
    return {memory_of(span), false};
  }
  void* const block = large.allocate(bytes, alignment);
  if (block == nullptr) {
    return {};
  }
  if constexpr (C::kSecure) {
    large.describe(block, std::max(bytes, std::size_t{1}), Origin::kMalloc, pool_->hardening);
  }
  region.count_reused(large.last_new_bytes());
  region.purge_above_peak();
  return {block, large.last_was_clean()};
}

// Makes a span of superblocks that hold memory, for a block above kLargestSpanBytes; nullptr: a
// mapping is better or needed.
template <Configuration C>
Superblock* BigBlocks<C>::span_in_memory(std::size_t bytes, std::size_t alignment) {
  const std::size_t count = superblocks_for(bytes);
  if (C::kSecure || count >= kSuperblocksInChunk || alignment > kSuperblockBytes ||
      pool_->region.large.keeps(bytes, alignment)) {
    return nullptr;
  }
  Superblock* const first = pool_->region.take_dirty(count);
  if (first != nullptr) {
    join(first, count, span_size(bytes));
  }
  return first;
}

template <Configuration C>
bool BigBlocks<C>::free_large(void* address, Fault& fault, [[maybe_unused]] FreedAs freed_as) {
  if constexpr (C::kSecure) {
    const Hardening::Mark mark = mark_of(*pool_, address);
    if (mark.bytes != 0 && !mark.intact) {
      pool_->report(address, Fault::kOverrun);
      return true;
    }
    check_freed_as(*pool_, address, mark, freed_as);
  }
  Large::Mapping rest{};
  {
    const Pool::Guard guard(*pool_);
    Region& region = pool_->region;
    const bool quarantines = C::kSecure && pool_->quarantine_bytes != 0;
    if (!region.large.free(address, quarantines ? pool_->hardening.random() | 1U : 0, &rest)) {
      fault = region.large.fault_of(address);
      return false;
    }
    region.purge_above_allowance();
  }
  if (rest.bytes != 0) {
    Large::unmap(rest);
  }
  return true;
}

template <Configuration C>
template <class F>
bool BigBlocks<C>::free_span(void* address, Fault& fault, [[maybe_unused]] FreedAs freed_as,
                             [[maybe_unused]] F keeps) {
  Superblock* const superblock = superblock_of(address);
  if (!begins_span(superblock, address)) {
    const bool free = superblock->kind == Kind::kFree || superblock->kind == Kind::kHeldBack;
    fault = index_in_chunk(superblock) != 0 && free ? Fault::kDoubleFree : Fault::kInterior;
    return false;
  }
  if constexpr (C::kSecure) {
    const Hardening::Mark mark = mark_of(*pool_, address);
    if (!mark.intact) {
      pool_->report(address, Fault::kOverrun);
      return true;
    }
    if (!claim_span(superblock)) {
      pool_->report(address, Fault::kDoubleFree);
      return true;
    }
    check_freed_as(*pool_, address, mark, freed_as);
    wipe_superblocks<C>(*pool_, superblock, superblock->length);
    const Pool::Guard guard(*pool_);
    quarantine_span(superblock);
    return true;
  }
  if (pool_->threaded) {
    set_kind(superblock, Kind::kHeldBack);  // before another thread can take it
    if (keeps(superblock)) {
      return true;
    }
  }
  const Pool::Guard guard(*pool_);
  pool_->region.give_span(superblock);
  return true;
}

template <Configuration C>
std::size_t BigBlocks<C>::usable(const void* address) const {
  if (!pool_->region.contains(address)) {
    const Pool::Guard guard(*pool_);
    return pool_->region.large.usable(address);
  }
  const Superblock* const superblock = superblock_of(address);
  return begins_span(superblock, address) ? superblock->size : 0;
}

template <Configuration C>
void* BigBlocks<C>::resize(void* address, std::size_t bytes, Origin origin) {
  Region& region = pool_->region;
  Large& large = region.large;
  if (!region.contains(address)) {
    if (bytes <= kLargestSpanBytes / 2 || bytes > PTRDIFF_MAX) {
      return nullptr;
    }
    const Pool::Guard guard(*pool_);
    const std::size_t before = large.usable(address);
    if (!C::kSecure && round_up(bytes, platform::page_size()) == before) {
      return address;
    }
    if (region.mapped_bytes() - before + bytes > region.settings.limit_bytes) {
      return nullptr;
    }
    void* const block = large.resize(address, bytes);
    if (C::kSecure && block != nullptr) {
      large.describe(block, bytes, origin, pool_->hardening);
    }
    if (bytes < before) {
      region.purge_above_allowance();
    } else if (block != nullptr) {
      region.count_reused(large.last_new_bytes());
      region.purge_above_peak();
    }
    return block;
  }
  Superblock* const superblock = superblock_of(address);
  if (bytes <= kLargestClassBytes || bytes > kChunkBytes || !begins_span(superblock, address)) {
    return nullptr;
  }
  const std::size_t length = superblock->length;
  const std::size_t wanted = superblocks_for(bytes);
  if (!C::kSecure && wanted == length) {
    store_shared(superblock->size, static_cast<std::uint32_t>(span_size(bytes)));
    return address;
  }
  const Pool::Guard guard(*pool_);
  if (bytes > kLargestSpanBytes &&
      (C::kSecure || (wanted > length && !region.holds_memory_behind(superblock, length, wanted)))) {
    return nullptr;
  }
  if (wanted > length) {
    if (!region.grow(superblock, length, wanted)) {
      return nullptr;
    }
  } else if (wanted < length) {
    wipe_superblocks<C>(*pool_, superblock + wanted, length - wanted);
    region.give(superblock + wanted, length - wanted);
  }
  join(superblock, wanted, span_size(bytes));
  mark_span<C>(*pool_, superblock, bytes, origin);
  return address;
}

template <Configuration C>
bool BigBlocks<C>::trim() {
  const Pool::Guard guard(*pool_);
  if constexpr (C::kSecure) {
    pool_->quarantined_spans.evict_all(0, [this](Superblock* span) { release_from_quarantine(span); });
    pool_->region.large.empty_quarantine();
  }
  return pool_->region.purge_all();
}

// Marks a span as freed. If several threads free one span at the same time, only the first gets
// true.
template <Configuration C>
bool BigBlocks<C>::claim_span(Superblock* span) {
  const Pool::Guard guard(*pool_);
  if (span->kind != Kind::kSpan) {
    return false;
  }
  set_kind(span, Kind::kHeldBack);
  return true;
}

// Puts a claimed span into quarantine. The caller holds the pool's lock.
template <Configuration C>
void BigBlocks<C>::quarantine_span(Superblock* span) {
  const std::size_t max_bytes = Pool::kSpanQuarantineFactor * pool_->quarantine_bytes;
  auto& spans = pool_->quarantined_spans;
  if (span_bytes(span) > max_bytes) {
    pool_->region.give(span, span->length);
    return;
  }
  if (!spans.is_seeded()) {
    spans.seed(pool_->hardening.random());
  }
  spans.add(span, max_bytes, [this](Superblock* old) { release_from_quarantine(old); });
}

template <Configuration C>
void BigBlocks<C>::release_from_quarantine(Superblock* span) {
  check_wiped(*pool_, memory_of(span), span_bytes(span));
  pool_->region.give(span, span->length);
}

}  // namespace heapwright::alloc
