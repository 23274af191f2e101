// What a hardened heap does to blocks that come and go (hardening.h); see heap.h, which includes this.
//
//     free ──► accept_free: is it a block, the program's, whole? ──► wiped ──► quarantine ──► readmit ──► its list, or home
//     malloc ◄── prepare: does it still read as zero? marked ◄── its list
#pragma once

namespace heapwright::alloc {

template <Configuration C>
void Heap<C>::prepare(Block* block, std::size_t bytes) const {
  Hardening& hardening = pool_->hardening;
  const std::size_t size = superblock_of(block)->size;
  if (hardening.wipes) {
    if (!Hardening::is_wiped(block + 1, size - sizeof(Block))) [[unlikely]] {
      report(block, Fault::kWriteAfterFree);
      Hardening::wipe(block, size);
    }
    block->next = nullptr;
  }
  Hardening::mark_allocated(block, !pool_->threaded);
  hardening.write_mark(block, size, std::max(bytes, std::size_t{1}), Origin::kMalloc);
}

template <Configuration C>
bool Heap<C>::accept_free(void* address, FreedAs freed_as) const {
  const Superblock* const superblock = superblock_of(address);
  if (!begins_block(superblock->reciprocal, address)) {
    report(address, Fault::kInterior);
    return false;
  }
  const bool allocated = Hardening::is_allocated(
      address);  // else there may be no block: the tail of a superblock has no mark to read
  const Hardening::Mark mark = allocated ? pool_->hardening.read_mark(address, superblock->size)
                                         : Hardening::Mark{0, Origin::kMalloc, false};
  if (allocated && !mark.intact) {
    report(address, Fault::kOverrun);
    return false;
  }
  if (!Hardening::mark_free(address, !pool_->threaded)) {
    report(address, Fault::kDoubleFree);
    return false;
  }
  check(address, mark, freed_as);
  if (pool_->hardening.wipes) {
    Hardening::wipe(address, superblock->size);
  }
  return true;
}

template <Configuration C>
void Heap<C>::check(const void* address, const Hardening::Mark& mark, FreedAs freed_as) const {
  if (!mark.intact) {
    return;  // free says what is wrong with it
  }
  if (mark.origin != freed_as.origin) {
    report(address, Fault::kWrongOrigin);
  } else if (freed_as.bytes != SIZE_MAX && std::max(freed_as.bytes, std::size_t{1}) != mark.bytes) {
    report(address, Fault::kWrongSize);
  }
}

template <Configuration C>
void Heap<C>::quarantine_block(void* address, FreedAs freed_as) {
  if (!accept_free(address, freed_as)) {
    return;
  }
  auto* const block = static_cast<Block*>(address);
  const std::size_t most = pool_->quarantine_bytes;
  if (most == 0) {
    leave_quarantine(block);
    return;
  }
  if (!quarantine_.is_seeded()) {
    quarantine_.seed(pool_->hardening.random());
  }
  for (Block* old = quarantine_.put(block); old != nullptr; old = nullptr) {
    leave_quarantine(old);
  }
  for (Block* old = quarantine_.evict(most); old != nullptr; old = quarantine_.evict(most)) {
    leave_quarantine(old);
  }
}

// A block may be used again.
template <Configuration C>
void Heap<C>::leave_quarantine(Block* block) {
  // Looked at here too: the superblock may go back as a whole, and be wiped.
  if (pool_->hardening.wipes && !Hardening::is_wiped(block, superblock_of(block)->size)) [[unlikely]] {
    report(block, Fault::kWriteAfterFree);
    Hardening::wipe(block, superblock_of(block)->size);
  }
  const std::uint32_t tag = load_shared(region().tag(block));
  const std::uint32_t offset = tag % (1U << kOwnerShift);
  if (pool_->threaded && tag - offset != hot_.owner) {
    free_remote(superblock_of(block), block);
  } else if (!push(list_at(hot_.lists.data(), offset), block)) {
    const std::size_t number = offset / sizeof(FreeList);
    flush_list(number, max_cached(number) / 4);
  }
}

template <Configuration C>
void Heap<C>::empty_quarantine() {
  if constexpr (C::kSecure) {
    for (Block* old = quarantine_.evict(0); old != nullptr; old = quarantine_.evict(0)) {
      leave_quarantine(old);
    }
  }
}

template <Configuration C>
bool Heap<C>::claim_span(Superblock* span) {
  const Pool::Guard guard(*pool_);
  if (span->kind != Kind::kSpan) {
    return false;
  }
  set_kind(span, Kind::kQuarantined);
  return true;
}

template <Configuration C>
void Heap<C>::quarantine_span(Superblock* span) {
  const std::size_t most = Pool::kSpanQuarantineFactor * pool_->quarantine_bytes;
  auto& spans = pool_->quarantined_spans;
  if (span_bytes(span) > most) {
    region().give(span, span->length);
    return;
  }
  if (!spans.is_seeded()) {
    spans.seed(pool_->hardening.random());
  }
  if (Superblock* const old = spans.put(span); old != nullptr) {
    return_span(old);
  }
  for (Superblock* old = spans.evict(most); old != nullptr; old = spans.evict(most)) {
    return_span(old);
  }
}

template <Configuration C>
void Heap<C>::return_span(Superblock* span) {
  char* const block = memory_of(span);
  if (pool_->hardening.wipes && !Hardening::is_wiped(block, span_bytes(span))) [[unlikely]] {
    report(block, Fault::kWriteAfterFree);
    Hardening::wipe(block, span_bytes(span));
  }
  region().give(span, span->length);
}

// Whatever block begins here, as its mark or its description has it; else not whole.
template <Configuration C>
Hardening::Mark Heap<C>::mark_of(const void* address) const {
  constexpr Hardening::Mark kNone{0, Origin::kMalloc, false};
  const Hardening& hardening = pool_->hardening;
  if (!region().contains(address)) {
    const Pool::Guard guard(*pool_);
    return pool_->large.mark(address, hardening);
  }
  const Superblock* const superblock = superblock_of(address);
  if (load_shared(region().tag(address)) % (1U << kOwnerShift) != 0) {
    const bool allocated = begins_block(superblock->reciprocal, address) && Hardening::is_allocated(address);
    return allocated ? hardening.read_mark(address, superblock->size) : kNone;
  }
  const bool span = index_in_chunk(superblock) != 0 && superblock->kind == Kind::kSpan;
  if (!span || memory_of(superblock) != address) {
    return kNone;
  }
  const std::size_t bytes = superblock->free_count;
  return {bytes, static_cast<Origin>(superblock->carved), hardening.end_intact(address, bytes)};
}

// Superblocks that go back to the region hold nothing of what was in them, neither data nor links.
template <Configuration C>
void Heap<C>::wipe_returned(Superblock* first, std::size_t count) const {
  if constexpr (C::kSecure) {
    if (pool_->hardening.wipes) {
      Hardening::wipe(memory_of(first), count * kSuperblockBytes);
    }
  }
}

// A span's description has room for what its mark would say.
template <Configuration C>
void Heap<C>::mark_span(Superblock* superblock, std::size_t bytes, Origin origin) const {
  if constexpr (C::kSecure) {
    superblock->free_count = static_cast<std::uint32_t>(bytes);
    superblock->carved = static_cast<std::uint32_t>(origin);
    pool_->hardening.write_end(memory_of(superblock), bytes);
  }
}

template <Configuration C>
void Heap<C>::set_origin(void* address, Origin origin) {
  const Superblock* const superblock = superblock_of(address);
  if (!region().contains(address)) {
    const Pool::Guard guard(*pool_);
    pool_->large.set_origin(address, origin);
  } else if (load_shared(region().tag(address)) % (1U << kOwnerShift) != 0) {
    const Hardening::Mark mark = pool_->hardening.read_mark(address, superblock->size);
    pool_->hardening.write_mark(address, superblock->size, mark.bytes, origin);
  } else {
    superblock_of(address)->carved = static_cast<std::uint32_t>(origin);
  }
}

}  // namespace heapwright::alloc
