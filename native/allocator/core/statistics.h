// What a heap can say of itself, found by walking its superblocks when asked: nothing is counted on the fast
// paths.
#pragma once

#include <cstddef>

#include "region.h"

namespace heapwright::alloc {

struct Statistics {
  Region::Statistics region;
  std::size_t large_bytes;  // in mappings of their own
  std::size_t large_count;
  std::size_t live_bytes;    // in blocks the program has: their full sizes, large ones included
  std::size_t live_blocks;   // of a size class
  std::size_t cached_bytes;  // in front lists
};

}  // namespace heapwright::alloc
