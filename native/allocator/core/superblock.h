// Defines the layout of memory: chunks, superblocks and their descriptions.
//
// Descriptions lie apart from the blocks, densely: one cache line for each 64 KiB.
//
//     region ──► grows upward, a chunk of 4 MiB at a time
//     ┌──────────────┬──────────────┬─────
//     │ chunk 0      │ chunk 1      │ ...
//     └──────────────┴──────────────┴─────
//       │
//       ├─ superblock 0: ┌────────┬──────────┬──────────┬── ─ ──┬───────────┐
//       │  (64 KiB)      │ Chunk  │ Super- 1 │ Super- 2 │       │ Super- 63 │   64 bytes each
//       │                └────────┴──────────┴──────────┴── ─ ──┴───────────┘
//       ├─ superblock 1: blocks of one size class, or a part of a span, or free
//       └─ ... 63
//
// A superblock in use by a class (kind = kBlocks):
//     ├ first ┼ carved · size ────────────┼ (capacity - carved) · size ┼─────────────────────────┤
//     │colour │ handed out at least once  │ never touched              │ too small for a block   │
// A block above the largest class is a span: `length` neighbouring superblocks (kind = kSpan for
// the first, kSpanTail for the others). The program may use only the pages that it asked for
// (`size`). The other pages cost no memory until they are touched, and a program that counts usable
// bytes, as Redis does, must not count them.
//
// Invariants:
//   - free_count is the number of blocks in `free` plus those on purged pages (page_purger.h) or
//     with a free bit (free_bits.h).
//   - free_count ≤ carved ≤ capacity.
//   - Every other carved block is allocated, cached, in quarantine, freed by another thread
//     (freed_by_others.h), in a batch or in a remote queue (remote_queue.h).
//   - A superblock is in its owner's queue exactly if `queued` is set.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "../platform/platform.h"
#include "config.h"
#include "heap_layout.h"
#include "list.h"

namespace heapwright::alloc {

// A free block: its first word links it to the next.
struct Block {
  Block* next;
};

enum class Kind : std::uint8_t {
  kFree = 0,      // in its chunk's `free` mask, or the first superblock of a span in FreedSpans
  kBlocks = 1,    // blocks of one class
  kSpan = 2,      // the first superblock of a block that takes whole superblocks
  kSpanTail = 3,  // a further superblock of a span
  kHeldBack = 4,  // the first superblock of a freed span: in a depot, or, hardened, in quarantine
};

struct alignas(64) Superblock {
  Block* free;
  std::uint32_t free_count;
  std::uint32_t carved;
  std::uint16_t capacity;    // in blocks
  std::uint16_t first;       // offset of the first block, by the superblock's colour: size_classes.h
  std::uint32_t size;        // of a block, in bytes; of a span, those of its pages in use
  std::uint32_t reciprocal;  // ⌈2³² / (size / 16)⌉, to divide by it
  union {
    std::uint32_t length;       // of a span, in superblocks
    std::uint32_t quick_limit;  // of blocks: see OwnedSuperblocks::set_quick_limit
  };
  std::uint8_t size_class;
  Kind kind;
  bool queued;
  bool current;  // its owner takes blocks from it without the lock: superblock_queues.h
  union {
    std::uint16_t purged_pages;  // bits of purged pages, of purged_page_bytes() each: page_purger.h
    std::uint16_t free_bits;     // of blocks below kMinPurgedBytes: how many bits are set, see free_bits.h
  };
  bool shared;       // other threads have freed blocks of it
  bool touched;      // it was used before and not purged since, so its pages have memory already
  Superblock* next;  // in the queue of its class, or in a list of the region
  Superblock* previous;
  void* owner;  // the OwnedSuperblocks of the heap that owns it, if `queued`, or owned it last
};
static_assert(sizeof(Superblock) == 64);
static_assert(kSuperblocksInChunk * sizeof(Superblock) == kBitsBegin);

// The bytes of the page that one bit of `purged_pages` stands for.
inline std::size_t purged_page_bytes() { return std::max(platform::page_size(), kSuperblockBytes / 16); }
// Returns how many bytes of a superblock had been purged, and clears its bits.
inline std::size_t take_purged_pages(Superblock* superblock) {
  return static_cast<std::size_t>(std::popcount(std::exchange(superblock->purged_pages, std::uint16_t{0}))) *
         purged_page_bytes();
}

// The first line of a chunk. Bit i of a mask is superblock i; bit 0 is never set.
struct alignas(64) Chunk {
  std::uint64_t free;    // belongs to no class and no span
  std::uint64_t dirty;   // free, but may hold memory: it was used since it was last purged
  std::uint64_t purged;  // free and purged: using it again costs page faults that keeping it would have saved
  Chunk* next;           // among chunks with a free superblock
  Chunk* previous;
  List<Chunk>* list;  // of OpenChunks, that the chunk is in; nullptr: none
  std::uint8_t huge;  // bits of the halves that may have huge pages, and that were full: see huge_pages.h
  std::uint8_t full;
  bool bits_resident;   // pages of free bits may have memory
  bool looks_resident;  // so may the page of remote queues, which idle_memory.h uses if there is one thread
};
static_assert(sizeof(Chunk) == 64);

inline Chunk* chunk_of(const void* address) {
  return reinterpret_cast<Chunk*>(reinterpret_cast<std::uintptr_t>(address) & ~(kChunkBytes - 1));
}

// Returns the description of the superblock that holds an address.
inline Superblock* superblock_of(const void* address) {
  Chunk* const chunk = chunk_of(address);
  const std::size_t index =
      (reinterpret_cast<std::uintptr_t>(address) >> kSuperblockShift) % kSuperblocksInChunk;
  return reinterpret_cast<Superblock*>(chunk) + index;
}

inline std::size_t index_in_chunk(const Superblock* superblock) {
  return (reinterpret_cast<std::uintptr_t>(superblock) % kChunkBytes) / sizeof(Superblock);
}

// Returns where a superblock's memory begins.
inline char* memory_of(const Superblock* superblock) {
  return reinterpret_cast<char*>(chunk_of(superblock)) + index_in_chunk(superblock) * kSuperblockBytes;
}

// The kind is atomic because statistics read it for superblocks of all threads.
inline void set_kind(Superblock* superblock, Kind kind) {
  __atomic_store(&superblock->kind, &kind, __ATOMIC_RELEASE);
}
inline Kind kind_of(const Superblock* superblock) {
  Kind kind{};
  __atomic_load(&superblock->kind, &kind, __ATOMIC_ACQUIRE);
  return kind;
}

// Returns whether a span begins at `address`, which lies in the superblock's memory. The first superblock
// of a chunk, which holds the descriptions, has no description itself.
inline bool begins_span(const Superblock* superblock, const void* address) {
  const std::uintptr_t in_chunk = reinterpret_cast<std::uintptr_t>(address) % kChunkBytes;
  return in_chunk % kSuperblockBytes == 0 && in_chunk != 0 && superblock->kind == Kind::kSpan;
}

// Tells a reader in another process how chunks and superblocks are described.
constexpr void describe_superblocks(HeapLayout& layout) {
  layout.superblocks_in_chunk = kSuperblocksInChunk;
  layout.superblock_bytes = kSuperblockBytes;
  layout.description_bytes = sizeof(Superblock);
  layout.chunk_free = offsetof(Chunk, free);
  layout.free_list = offsetof(Superblock, free);
  layout.free_count = offsetof(Superblock, free_count);
  layout.carved = offsetof(Superblock, carved);
  layout.first_block = offsetof(Superblock, first);
  layout.size = offsetof(Superblock, size);
  layout.length = offsetof(Superblock, length);
  layout.kind = offsetof(Superblock, kind);
  layout.purged_pages = offsetof(Superblock, purged_pages);
  layout.kind_blocks = static_cast<std::uint8_t>(Kind::kBlocks);
  layout.kind_span = static_cast<std::uint8_t>(Kind::kSpan);
  layout.kind_quarantined = static_cast<std::uint8_t>(Kind::kHeldBack);
}

// The sizes that quarantines add up; 0 for no item.
inline std::size_t block_bytes(Block* const& block) {
  return block == nullptr ? 0 : superblock_of(block)->size;
}
inline std::size_t span_bytes(Superblock* const& span) {
  return span == nullptr ? 0 : std::size_t{span->length} * kSuperblockBytes;
}

// Makes `length` superblocks a span for a block of `usable` bytes.
inline void join(Superblock* first, std::size_t length, std::size_t usable) {
  first->size = static_cast<std::uint32_t>(usable);
  set_kind(first, Kind::kSpan);
  first->length = static_cast<std::uint32_t>(length);
  for (std::size_t i = 1; i < length; ++i) {
    set_kind(first + i, Kind::kSpanTail);
  }
}

}  // namespace heapwright::alloc
