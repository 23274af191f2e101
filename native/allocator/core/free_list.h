// Defines the links of free lists: how one block links to the next, and how a superblock's tag
// names the list of its class.
//
// A tag is the 32-bit word that the region keeps for each superblock (region.h):
//
//      31          16 15                      0
//     ┌──────────────┬─────────────────────────┐
//     │ owner's heap │ offset of a FreeList in │    offset 0: no blocks of a size class
//     │ number       │ the thread cache, bytes │
//     └──────────────┴─────────────────────────┘
#pragma once

#include <cstddef>
#include <cstdint>

#include "config.h"
#include "inlining.h"
#include "pool.h"
#include "superblock.h"

namespace heapwright::alloc {

// The free blocks of one size class in a thread cache.
struct FreeList {
  Block* head;
  std::int32_t frees_left;  // so many frees until the list is checked
  std::int32_t max_length;  // an upper bound of its length at that check
};

// The outcome of a fast path of free.
enum class FreeResult : std::uint8_t {
  kDone,
  kListFull,   // the block is freed, and its list is due for a check
  kBatchFull,  // the block is freed, and its batch is full
  kNoBatch,    // nothing is freed: the tag names another heap, and the superblock has no batch
  kSlow,       // nothing is freed
};

inline constexpr unsigned kOwnerShift = 16;
constexpr std::uint32_t owner_tag(std::uint32_t heap_number) { return heap_number << kOwnerShift; }
constexpr std::uint32_t list_offset(std::uint32_t tag) { return tag % (1U << kOwnerShift); }
constexpr std::size_t class_of_tag(std::uint32_t tag) { return list_offset(tag) / sizeof(FreeList); }
constexpr std::uint32_t make_tag(std::uint32_t owner, std::size_t class_number) {
  return owner | static_cast<std::uint32_t>(class_number * sizeof(FreeList));
}

// Reads the tag of the superblock that holds `address`. The owner may change it at any time: for
// other threads it is a hint.
inline std::uint32_t tag_of(const Pool& pool, const void* address) {
  return __atomic_load_n(&pool.region.tag(address), __ATOMIC_RELAXED);
}

// Fields of a superblock's description that only its owner writes and that other threads may read.
template <class T>
void store_shared(T& field, T value) {
  __atomic_store_n(&field, value, __ATOMIC_RELAXED);
}
template <class T>
T load_shared(const T& field) {
  return __atomic_load_n(&field, __ATOMIC_RELAXED);
}

// Returns the block that follows in the list. A hardened build decodes the link; a damaged link is
// reported and ends the list.
template <Configuration C>
[[nodiscard]] HEAPWRIGHT_INLINE Block* next_of(const Pool& pool, const Block* block) {
  if constexpr (C::kSecure) {
    Block* const next = pool.hardening.decode(block);
    if (next != nullptr && (!pool.region.contains(next) || reinterpret_cast<std::uintptr_t>(next) % 16 != 0))
        [[unlikely]] {
      pool.report(block, Fault::kWriteAfterFree);
      return nullptr;
    }
    return next;
  } else {
    return block->next;
  }
}

template <Configuration C>
HEAPWRIGHT_INLINE void set_next(const Pool& pool, Block* block, Block* next) {
  if constexpr (C::kSecure) {
    next = pool.hardening.encode(block, next);
  }
  block->next = next;
}

}  // namespace heapwright::alloc
