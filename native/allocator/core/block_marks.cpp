// Writes and checks the marks of each kind of block. See block_marks.h.
#include "block_marks.h"

#include <algorithm>

namespace heapwright::alloc {

void prepare_block(Pool& pool, Block* block, std::size_t bytes) {
  Hardening& hardening = pool.hardening;
  const std::size_t size = superblock_of(block)->size;
  if (hardening.wipes) {
    if (!Hardening::is_wiped(block + 1, size - sizeof(Block))) [[unlikely]] {
      pool.report(block, Fault::kWriteAfterFree);
      Hardening::wipe(block, size);
    }
    block->next = nullptr;
  }
  Hardening::mark_allocated(block, !pool.threaded);
  hardening.write_mark(block, size, std::max(bytes, std::size_t{1}), Origin::kMalloc);
}

void check_freed_as(const Pool& pool, const void* address, const Hardening::Mark& mark, FreedAs freed_as) {
  if (!mark.intact) {
    return;
  }
  if (mark.origin != freed_as.origin) {
    pool.report(address, Fault::kWrongOrigin);
  } else if (freed_as.bytes != SIZE_MAX && std::max(freed_as.bytes, std::size_t{1}) != mark.bytes) {
    pool.report(address, Fault::kWrongSize);
  }
}

bool accept_free(Pool& pool, void* address, FreedAs freed_as) {
  const Superblock* const superblock = superblock_of(address);
  if (!begins_block(superblock, address)) {
    pool.report(address, Fault::kInterior);
    return false;
  }
  // Only an allocated block has a mark: the unused tail of a superblock has none that could be
  // read.
  const bool allocated = Hardening::is_allocated(address);
  const Hardening::Mark mark = allocated ? pool.hardening.read_mark(address, superblock->size)
                                         : Hardening::Mark{0, Origin::kMalloc, false};
  if (allocated && !mark.intact) {
    pool.report(address, Fault::kOverrun);
    return false;
  }
  if (!Hardening::mark_free(address, !pool.threaded)) {
    pool.report(address, Fault::kDoubleFree);
    return false;
  }
  check_freed_as(pool, address, mark, freed_as);
  if (pool.hardening.wipes) {
    Hardening::wipe(address, superblock->size);
  }
  return true;
}

void check_wiped(const Pool& pool, void* block, std::size_t bytes) {
  if (pool.hardening.wipes && !Hardening::is_wiped(block, bytes)) [[unlikely]] {
    pool.report(block, Fault::kWriteAfterFree);
    Hardening::wipe(block, bytes);
  }
}

Hardening::Mark mark_of(Pool& pool, const void* address) {
  constexpr Hardening::Mark kNone{0, Origin::kMalloc, false};
  const Hardening& hardening = pool.hardening;
  if (!pool.region.contains(address)) {
    const Pool::Guard guard(pool);
    return pool.region.large.mark(address, hardening);
  }
  const Superblock* const superblock = superblock_of(address);
  if (list_offset(tag_of(pool, address)) != 0) {
    const bool allocated = begins_block(superblock, address) && Hardening::is_allocated(address);
    return allocated ? hardening.read_mark(address, superblock->size) : kNone;
  }
  if (!begins_span(superblock, address)) {
    return kNone;
  }
  const std::size_t bytes = superblock->free_count;
  return {bytes, static_cast<Origin>(superblock->carved), hardening.end_intact(address, bytes)};
}

void set_origin(Pool& pool, void* address, Origin origin) {
  Superblock* const superblock = superblock_of(address);
  if (!pool.region.contains(address)) {
    const Pool::Guard guard(pool);
    pool.region.large.set_origin(address, origin);
  } else if (list_offset(tag_of(pool, address)) != 0) {
    Hardening::set_origin(address, superblock->size, origin);
  } else {
    superblock->carved = static_cast<std::uint32_t>(origin);
  }
}

}  // namespace heapwright::alloc
