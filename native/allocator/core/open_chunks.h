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
  std::array<std::uint64_t, 6> begin{bits};  // begin[i]: the bits that begin a run of 2^i
  for (std::size_t i = 1; i < begin.size(); ++i) {
    begin[i] = begin[i - 1] & (begin[i - 1] >> (1U << (i - 1)));
  }
  std::size_t length = 0;
  std::uint64_t longest = ~std::uint64_t{0};  // the bits that begin a run of this length
  for (std::size_t i = begin.size(); i-- > 0;) {
    const std::uint64_t longer = longest & (begin[i] >> length);
    longest = longer != 0 ? longer : longest;
    length += longer != 0 ? std::size_t{1} << i : 0;
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

  // Must be called after a chunk has changed, and for a new chunk: puts it in the list that it
  // belongs to.
  void update(Chunk* chunk) {
    List<Chunk>* const to = list_of(chunk);
    if (to == chunk->list) {
      return;
    }
    remove(chunk);
    if (to == nullptr) {
      return;
    }
    to->push_front(chunk);
    chunk->list = to;
    if (to != &empty) {
      Runs& runs = runs_of(chunk);
      runs.filled |= std::uint64_t{1} << (to - runs.by_length.data());
    }
  }
  void remove(Chunk* chunk) {
    if (chunk->list != nullptr) {
      chunk->list->remove(chunk);
      chunk->list = nullptr;
    }
  }
  // Chooses a chunk that has `count` neighbouring superblocks with their bits in `where` set, among
  // those whose longest run is the shortest that suffices: so long runs stay whole. Of at most
  // `max_searched` chunks it takes the fullest, and the first in memory if several are equally
  // full. If there is none, the result's chunk is nullptr.
  struct Choice {
    Chunk* chunk = nullptr;
    std::size_t first = 0;  // the index of the first of the neighbouring superblocks
  };
  static Choice choose(Runs& runs, std::uint64_t Chunk::* where, std::size_t count,
                       std::size_t max_searched) {
    Search search{where, count, max_searched};
    for (std::uint64_t left = runs.filled >> count << count;
         left != 0 && search.left != 0 && search.best.chunk == nullptr; left &= left - 1) {
      const List<Chunk>& list = runs.by_length[static_cast<std::size_t>(std::countr_zero(left))];
      if (list.first == nullptr) {
        runs.filled &= ~(left ^ (left & (left - 1)));  // its last chunk has left
      }
      search.in(list);
    }
    return search.best;
  }
  static Choice choose(const List<Chunk>& list, std::uint64_t Chunk::* where, std::size_t count,
                       std::size_t max_searched) {
    Search search{where, count, max_searched};
    search.in(list);
    return search.best;
  }

 private:
  // Returns the list that a chunk belongs to; nullptr: it has no free superblock.
  List<Chunk>* list_of(const Chunk* chunk) {
    if (chunk->free == 0) {
      return nullptr;
    }
    return chunk->free == kAllFree ? &empty : &runs_of(chunk).by_length[longest_run(chunk->free)];
  }
  Runs& runs_of(const Chunk* chunk) { return chunk->huge != 0 ? huge : plain; }

  struct Search {
    std::uint64_t Chunk::* where;
    std::size_t count;
    std::size_t left;  // chunks that it may still look at
    Choice best{};
    int best_free = kSuperblocksInChunk;

    void in(const List<Chunk>& list) {
      for (Chunk* chunk = list.first; chunk != nullptr && left != 0; chunk = chunk->next, --left) {
        const int free = std::popcount(chunk->free);
        if (free > best_free || (free == best_free && chunk > best.chunk)) {
          continue;
        }
        if (const std::size_t first = find_run(chunk->*where, count); first < kSuperblocksInChunk) {
          best = {chunk, first};
          best_free = free;
        }
      }
    }
  };
};

}  // namespace heapwright::alloc
