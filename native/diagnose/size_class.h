// Holds the figures of one size class of an allocator.
#pragma once

#include <cstdint>

namespace heapwright::diagnose {

struct SizeClass {
  std::uint64_t size = 0;  // of a block, in bytes
  std::uint64_t live_blocks = 0;
  std::uint64_t free_blocks = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t spans = 0;  // ranges of pages that hold blocks of this class
};

}  // namespace heapwright::diagnose
