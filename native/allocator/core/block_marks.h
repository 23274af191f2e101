// Writes and checks the marks of hardened blocks, of every kind of block (hardening.h explains
// marks).
//
//     malloc ◄── prepare_block: does the memory still read as zero? then mark it as allocated
//     free   ──► accept_free: does a block begin here, is it allocated, is its mark intact?
//                              then wipe it
//
// These functions have no state of their own. Only hardened builds call them; the templates do
// nothing in others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "carving.h"
#include "free_list.h"

namespace heapwright::alloc {

// Prepares a free block with a size class for the program, which asked for `bytes`.
void prepare_block(Pool& pool, Block* block, std::size_t bytes);

// Reports a free that does not fit how the block was allocated. It does nothing if the mark is
// damaged: free() reports that.
void check_freed_as(const Pool& pool, const void* address, const Hardening::Mark& mark, FreedAs freed_as);

// Takes a block with a size class back from the program and wipes it. Returns false, after a
// report, if the block must not be freed.
bool accept_free(Pool& pool, void* address, FreedAs freed_as);

// Reports and repairs a free block that was written to. `block` and everything up to `bytes` behind
// it must read as zero.
void check_wiped(const Pool& pool, void* block, std::size_t bytes);

// Wipes superblocks before they return to the region, so that neither data nor links remain in
// them.
template <Configuration C>
void wipe_superblocks(const Pool& pool, Superblock* first, std::size_t count) {
  if constexpr (C::kSecure) {
    if (pool.hardening.wipes) {
      Hardening::wipe(memory_of(first), count * kSuperblockBytes);
    }
  }
}

// Records the data of a mark in a span's description, and writes its canary.
template <Configuration C>
void mark_span(const Pool& pool, Superblock* span, std::size_t bytes, Origin origin) {
  if constexpr (C::kSecure) {
    span->free_count = static_cast<std::uint32_t>(bytes);
    span->carved = static_cast<std::uint32_t>(origin);
    pool.hardening.write_end(memory_of(span), bytes);
  }
}

// Returns the mark of any block that begins at `address`; not intact if none does.
Hardening::Mark mark_of(Pool& pool, const void* address);

// Records that one of C++'s operators allocated the block.
void set_origin(Pool& pool, void* address, Origin origin);

}  // namespace heapwright::alloc
