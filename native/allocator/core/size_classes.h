// Maps sizes to size classes, with an executable specification.
//
// With P classes in each doubling (P = 4 here, granule 16):
//
//     16  32  48  64 | 80  96  112  128 | 160  192  224  256 | 320 ...      32 KiB
//     P classes by 16  P classes by 16    P classes by 32      by 64
//
// So above 16·P bytes a block is at most 1/(P+1) larger than the requested size plus one byte.
// Blocks start at multiples of their class's size in a superblock. Alignment therefore needs no
// flag: a block of a class whose size is divisible by A is aligned to A.
//
// Class numbers begin with 1; 0 means 'no class'.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "config.h"

namespace heapwright::alloc {

template <std::size_t kPerDoubling>
struct SizeClasses {
  static_assert(std::has_single_bit(kPerDoubling) && kPerDoubling <= 64);
  static constexpr std::size_t kGranule = 16;
  static constexpr std::size_t kLogP = std::bit_width(kPerDoubling) - 1;
  static constexpr std::size_t kDoublings =
      std::bit_width(kLargestClassBytes / (kGranule * kPerDoubling)) - 1;
  static constexpr std::size_t kCount = kPerDoubling * (kDoublings + 1) + 1;  // with class 0

  // Returns the smallest class for `bytes`, which is at most kLargestClassBytes.
  static constexpr std::size_t of(std::size_t bytes) {
    const std::size_t last = bytes - (bytes != 0 ? 1 : 0);
    if (last < kGranule * kPerDoubling) {
      return last / kGranule + 1;
    }
    const std::size_t shift = static_cast<std::size_t>(std::bit_width(last)) - 1 - kLogP;
    return (last >> shift) + (shift - 4) * kPerDoubling + 1;
  }

  // Returns the size of a class's blocks in bytes.
  static constexpr std::size_t bytes(std::size_t number) {
    const std::size_t index = number - 1;
    if (index < kPerDoubling) {
      return (index + 1) * kGranule;
    }
    const std::size_t step = index / kPerDoubling - 1;
    return (index % kPerDoubling + kPerDoubling + 1) << (step + 4);
  }

  // Returns the smallest class whose blocks hold `size` bytes and lie at multiples of `alignment`,
  // a power of two; 0: there is none.
  //
  // Its blocks are at least `size` rounded up to the alignment. A class for that is aligned: sizes
  // are the multiples of a power of two, the step of their doubling. If the step is at least the
  // alignment, all of them are multiples of it; otherwise the rounded size is one of them.
  static constexpr std::size_t aligned(std::size_t size, std::size_t alignment) {
    const std::size_t rounded = (size + (size == 0 ? 1 : 0) + alignment - 1) & ~(alignment - 1);
    return rounded <= kLargestClassBytes ? of(rounded) : 0;
  }

  // The specification: sizes rise; each size maps to the smallest class that holds it; waste is
  // within the bound.
  static constexpr bool valid() {
    if (bytes(kCount - 1) != kLargestClassBytes) {
      return false;
    }
    for (std::size_t number = 1; number < kCount; ++number) {
      const std::size_t size = bytes(number);
      const std::size_t below = number == 1 ? 0 : bytes(number - 1);
      if (size <= below || of(size) != number || of(below + 1) != number || size % kGranule != 0) {
        return false;
      }
      if (below >= kGranule * kPerDoubling && (size - below - 1) * (kPerDoubling + 1) > size) {
        return false;
      }
    }
    return of(0) == 1;
  }
  static_assert(valid());
};

}  // namespace heapwright::alloc
