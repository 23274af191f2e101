// The chunks that have a free superblock, in three lists: wholly free, with huge pages, and others.
//
// Memory is taken from the fullest chunk of a list, so that chunks become full or empty. The caller
// holds the pool's lock.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "list.h"
#include "superblock.h"

namespace heapwright::alloc {

// Returns where a run of `count` set bits begins, or 64.
inline std::size_t find_run(std::uint64_t bits, std::size_t count) {
  std::size_t have = 1;  // each set bit of `bits` begins a run of this length
  while (have < count && bits != 0) {
    const std::size_t step = have < count - have ? have : count - have;
    bits &= bits >> step;
    have += step;
  }
  return static_cast<std::size_t>(std::countr_zero(bits));
}

struct OpenChunks {
  static constexpr std::uint64_t kAllFree = ~std::uint64_t{1};  // superblock 0 holds the descriptions

  List<Chunk> empty;  // wholly free
  List<Chunk> huge;   // with huge pages (huge_pages.h)
  List<Chunk> plain;  // others

  // Returns the list that a chunk belongs to; nullptr: it has no free superblock.
  List<Chunk>* list_of(const Chunk* chunk) {
    if (chunk->free == 0) {
      return nullptr;
    }
    return chunk->free == kAllFree ? &empty : chunk->huge != 0 ? &huge : &plain;
  }
  // Must be called after a chunk has changed: `from` is the list that it belonged to.
  void move(Chunk* chunk, List<Chunk>* from) {
    List<Chunk>* const to = list_of(chunk);
    if (to == from) {
      return;
    }
    if (from != nullptr) {
      from->remove(chunk);
    }
    if (to != nullptr) {
      to->push_front(chunk);
    }
  }
  // Chooses a chunk that has `count` neighbouring superblocks with their bits in `where` set: the
  // fullest of the first `max_searched` of a list, and the first in memory if several are equally
  // full; nullptr: there is none.
  static Chunk* choose(const List<Chunk>& list, std::uint64_t Chunk::* where, std::size_t count,
                       std::size_t max_searched) {
    Chunk* best = nullptr;
    int best_free = kSuperblocksInChunk;
    std::size_t searched = 0;
    for (Chunk* chunk = list.first; chunk != nullptr && searched < max_searched;
         chunk = chunk->next, ++searched) {
      const int free = std::popcount(chunk->free);
      if ((free < best_free || (free == best_free && chunk < best)) &&
          find_run(chunk->*where, count) < kSuperblocksInChunk) {
        best = chunk;
        best_free = free;
      }
    }
    return best;
  }
};

}  // namespace heapwright::alloc
