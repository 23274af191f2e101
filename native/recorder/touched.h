// Measures which part of a large block the program touches.
//
// The resident pages of a block tell, if none was resident when the program got it. But memory that
// an earlier block has used is resident already:
//
//     new block, its pages        when it is freed
//     ─────────────────────────────────────────────────────────────────────────────────────
//     not resident                its resident pages
//     resident, given back to     its resident pages; each time, the touched share of blocks of
//     the kernel (one of 64)      this size is updated
//     resident                    that share, at most its resident pages
//
// Giving pages back (MADV_DONTNEED) is allowed because the content of a new block is undefined. It
// changes the program's resident memory, which the recorder measures too, and costs page faults. So
// the first blocks of a size do it, then one of 64 (of 512 where the program fills its blocks). All
// sizes together give back at most 32 MiB plus 1/64 of the bytes of large blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heapwright::recorder {

// How the touched part of a block will be known.
enum class Touching : std::uint8_t {
  kUnknown = 0,    // it may have had content: all resident pages count
  kMeasured = 1,   // no page was resident: its resident pages are the touched ones
  kEstimated = 2,  // by the share of its size
};

// Takes in a block of `size` bytes that malloc has just returned. Not for a block that may have
// content (calloc, realloc, an operator new that is not the runtime's).
Touching begin_touching(void* block, std::size_t size);

// Returns how many bytes of a block the program has touched, in whole pages.
//
// address, size  of the block, which is live
// touching       what begin_touching() returned for it; kUnknown if it was not called
std::size_t end_touching(std::uintptr_t address, std::size_t size, Touching touching);

// Returns how many bytes of a block are resident, in whole pages.
std::size_t resident_part(std::uintptr_t address, std::size_t size);

}  // namespace heapwright::recorder
