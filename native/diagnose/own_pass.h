// Reads the state of exgen's or reaper's heap in another process once: every superblock's
// description, and the free blocks that heaps of threads hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "memory.h"
#include "own_layout.h"

namespace heapwright::diagnose {

// The description of one superblock in use, and how many of its blocks are free, by where they are.
struct Described {
  std::uint64_t address = 0;  // of its memory
  std::uint64_t free_list = 0;
  std::uint32_t first = 0;    // offset of the first block
  std::uint32_t size = 0;     // of a block; of a span, its usable bytes
  std::uint32_t carved = 0;   // blocks
  std::uint32_t length = 0;   // of a span, in superblocks
  std::uint32_t in_list = 0;  // in the free list, on purged pages, or with a free bit
  std::uint32_t with_bit = 0;
  std::uint32_t in_queue = 0;
  std::uint32_t first_queued = 0;  // number of its granule of 16 bytes, plus 1
  std::uint32_t in_caches = 0;     // not known in hardened builds
  std::uint32_t in_batches = 0;    // likewise
  std::uint32_t allocated = 0;     // hardened builds only
  std::uint16_t purged_pages = 0;
  std::uint8_t kind = 0;
  friend bool operator==(const Described&, const Described&) = default;
};

// The number of the block that holds an address of the superblock; for an address before the first block
// a number that no block has.
inline std::uint64_t block_number(const Described& superblock, std::uint64_t address) {
  return (address - superblock.address - superblock.first) / superblock.size;
}
inline bool begins_block(const Described& superblock, std::uint64_t address) {
  return (address - superblock.address - superblock.first) % superblock.size == 0;
}

// A piece of memory: address and bytes.
using Piece = std::pair<std::uint64_t, std::uint64_t>;

// What one pass found. Two equal passes mean that nothing changed meanwhile.
struct Pass {
  std::uint64_t region_begin = 0;
  std::uint64_t region_bytes = 0;
  std::uint64_t used = 0;         // superblocks, by the region's own count
  std::uint64_t dirty = 0;        // likewise: empty ones that may hold memory
  std::uint64_t quarantined = 0;  // bytes
  bool threaded = false;
  bool sound = true;                   // no impossible value was met
  std::vector<std::uint64_t> heaps;    // addresses
  std::vector<Piece> large;            // live blocks with a mapping of their own
  std::vector<Piece> kept;             // freed ones whose mapping is kept
  std::vector<Described> superblocks;  // those in use, by address; not the tails of spans
  std::vector<std::uint64_t> empty;    // addresses of empty superblocks
  std::vector<std::uint64_t> held;     // addresses of the blocks in caches and batches, in order
  friend bool operator==(const Pass&, const Pass&) = default;
};

class PassReader {
 public:
  PassReader(const Memory& memory, const alloc::HeapLayout& layout) : memory_(memory), layout_(layout) {}

  Pass read();
  // Whether links between free blocks are encoded, so that only bits say which blocks are
  // allocated.
  [[nodiscard]] bool hardened() const { return layout_.marks_begin != 0; }

 private:
  void read_chunk(std::uint64_t chunk);
  void describe(std::size_t index, std::uint64_t chunk);
  void read_heaps();
  void read_heap(std::uint64_t address);
  void hold_list(std::uint64_t first, std::uint32_t Described::* count);
  bool hold(std::uint64_t block, std::uint32_t Described::* count);
  void read_large();
  void read_entries(std::uint64_t address, std::uint64_t count, std::vector<Piece>& to);
  std::uint64_t link_at(std::uint64_t block);
  [[nodiscard]] std::uint64_t offset_in_heap(const void* of_first) const {
    return reinterpret_cast<std::uint64_t>(of_first) - reinterpret_cast<std::uint64_t>(layout_.first_heap);
  }

  const Memory& memory_;
  const alloc::HeapLayout& layout_;
  Pass pass_;
  std::vector<char> header_;            // of the current chunk
  std::vector<std::uint32_t> numbers_;  // for each superblock of the region its number in the pass, plus 1
  std::unordered_map<std::uint64_t, std::vector<char>> link_pages_;  // pages with free blocks, by address
};

}  // namespace heapwright::diagnose
