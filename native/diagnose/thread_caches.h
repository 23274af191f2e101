// Finds the caches of threads (tcache) in glibc's heaps, and counts the free blocks in them.
//
// A cache is itself a block of the arena of its thread. In glibc 2.30 to 2.41 it holds a count of
// blocks and a pointer to the first of them, for each of 64 sizes. No symbol leads to the caches, so
// each block in use that has the size of a cache is tried. It is a cache if a count is zero exactly
// where the pointer is null, and if each pointer leads to as many blocks of its size as counted. All
// these blocks also hold the same key, by which glibc recognises blocks of caches.
//
// Other versions lay caches out differently. None is found there.
//
// Nothing is stopped. A cache whose lists change each time that they are followed is not counted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>

#include "memory.h"
#include "segment.h"

namespace heapwright::diagnose {

class ThreadCaches {
 public:
  // Adds a heap of a thread's arena.
  void add_heap(std::uint64_t begin, std::uint64_t end, std::uint64_t arena) {
    heaps_[begin] = {.end = end, .arena = arena};
  }
  // Adds a block in use, if it looks like a cache. `size` is that of the chunk, with its header.
  void add_if_cache(Segment& segment, std::uint64_t chunk, std::uint64_t size);

  struct Found {
    std::uint64_t caches = 0;                         // number of those that hold blocks
    std::map<std::uint64_t, std::uint64_t> by_arena;  // bytes of cached chunks; 0: the main arena
    bool complete = true;                             // false: the time was up
  };
  // Counts the blocks of all caches. `late` tells whether the time is up.
  [[nodiscard]] Found count(const Memory& memory, const std::function<bool()>& late) const;

 private:
  struct Heap {
    std::uint64_t end = 0;
    std::uint64_t arena = 0;
  };

  std::map<std::uint64_t, Heap> heaps_;  // by their addresses
  std::set<std::uint64_t> chunks_;       // that look like caches
};

}  // namespace heapwright::diagnose
