// Lists the chunks that have a free superblock: wholly free ones, those with huge pages, and
// others.
//
// Memory is taken from full chunks first, so that chunks become full or empty. The caller holds the
// pool's lock.
#pragma once

#include <array>
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

// Returns the length of the longest run of set bits, of which there are at most 63.
inline std::size_t longest_run(std::uint64_t bits) {
  std::array<std::uint64_t, 6> begin{};  // begin[i]: the bits that begin a run of 2^i
  begin[0] = bits;
  std::size_t i = 0;
  while (i + 1 < begin.size() && (begin[i] & (begin[i] >> (1U << i))) != 0) {
    begin[i + 1] = begin[i] & (begin[i] >> (1U << i));
    ++i;
  }
  std::size_t length = bits != 0 ? std::size_t{1} << i : 0;
  for (std::uint64_t longest = begin[i]; i-- > 0;) {
    if (const std::uint64_t longer = longest & (begin[i] >> length); longer != 0) {
      longest = longer;
      length += std::size_t{1} << i;
    }
  }
  return length;
}

struct OpenChunks {
  static constexpr std::uint64_t kAllFree = ~std::uint64_t{1};  // superblock 0 holds the descriptions

  // Chunks by the length of their longest run of free superblocks: so a span finds memory in a heap
  // of any size without a look at the chunks that have no room for it.
  struct Runs {
    std::array<List<Chunk>, kSuperblocksInChunk> by_length;
    std::uint64_t filled = 0;  // bit i is set if by_length[i] may have a chunk
  };
  List<Chunk> empty;  // wholly free
  Runs huge;          // with huge pages (huge_pages.h)
  Runs plain;         // others

  // Returns the list that a chunk belongs to; nullptr: it has no free superblock.
  List<Chunk>* list_of(const Chunk* chunk) {
    if (chunk->free == 0) {
      return nullptr;
    }
    return chunk->free == kAllFree ? &empty : &runs_of(chunk).by_length[longest_run(chunk->free)];
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
    if (to == nullptr) {
      return;
    }
    to->push_front(chunk);
    if (to != &empty) {
      Runs& runs = runs_of(chunk);
      runs.filled |= std::uint64_t{1} << (to - runs.by_length.data());
    }
  }
  // Chooses a chunk that has `count` neighbouring superblocks with their bits in `where` set, among
  // those whose longest run is the shortest that suffices: so long runs stay whole. Of at most
  // `max_searched` chunks it takes the fullest, and the first in memory if several are equally full.
  // Returns nullptr if there is none.
  static Chunk* choose(Runs& runs, std::uint64_t Chunk::* where, std::size_t count,
                       std::size_t max_searched) {
    Search search{where, count, max_searched};
    for (std::uint64_t left = runs.filled >> count << count;
         left != 0 && search.left != 0 && search.best == nullptr; left &= left - 1) {
      const List<Chunk>& list = runs.by_length[static_cast<std::size_t>(std::countr_zero(left))];
      if (list.first == nullptr) {
        runs.filled &= ~(left ^ (left & (left - 1)));  // its last chunk has left
      }
      search.in(list);
    }
    return search.best;
  }
  static Chunk* choose(const List<Chunk>& list, std::uint64_t Chunk::* where, std::size_t count,
                       std::size_t max_searched) {
    Search search{where, count, max_searched};
    search.in(list);
    return search.best;
  }

 private:
  Runs& runs_of(const Chunk* chunk) { return chunk->huge != 0 ? huge : plain; }

  struct Search {
    std::uint64_t Chunk::* where;
    std::size_t count;
    std::size_t left;  // chunks that it may still look at
    Chunk* best = nullptr;
    int best_free = kSuperblocksInChunk;

    void in(const List<Chunk>& list) {
      for (Chunk* chunk = list.first; chunk != nullptr && left != 0; chunk = chunk->next, --left) {
        const int free = std::popcount(chunk->free);
        if ((free < best_free || (free == best_free && chunk < best)) &&
            find_run(chunk->*where, count) < kSuperblocksInChunk) {
          best = chunk;
          best_free = free;
        }
      }
    }
  };
};

}  // namespace heapwright::alloc
