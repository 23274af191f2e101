// The map from sizes to size classes, and its executable specification.
//
// With P classes in each doubling (P = 4 here, granule 16):
//
//     16  32  48  64 | 80  96  112  128 | 160  192  224  256 | 320 ...      32 KiB
//     P classes by 16  P classes by 16    P classes by 32      by 64
//
// so above 16·P bytes a block is at most 1/(P+1) larger than what was asked for plus one byte. A class is a
// multiple of the largest power of two below its step, and blocks start at multiples of the class in a
// superblock, which is why alignment needs no flag: a block of a class divisible by A is aligned to A.
//
// Class numbers begin with 1; 0 stands for 'no class'.
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

  // The smallest class that holds so many bytes, at most kLargestClassBytes.
  static constexpr std::size_t of(std::size_t bytes) {
    const std::size_t last = bytes - (bytes != 0 ? 1 : 0);
    if (last < kGranule * kPerDoubling) {
      return last / kGranule + 1;
    }
    const std::size_t shift = static_cast<std::size_t>(std::bit_width(last)) - 1 - kLogP;
    return (last >> shift) + (shift - 4) * kPerDoubling + 1;
  }

  // The size of a class's blocks.
  static constexpr std::size_t bytes(std::size_t number) {
    const std::size_t index = number - 1;
    if (index < kPerDoubling) {
      return (index + 1) * kGranule;
    }
    const std::size_t step = index / kPerDoubling - 1;
    return (index % kPerDoubling + kPerDoubling + 1) << (step + 4);
  }

  // The smallest class with blocks of so many bytes at multiples of `alignment`, or 0.
  static constexpr std::size_t aligned(std::size_t size, std::size_t alignment) {
    for (std::size_t number = of(size); number < kCount; ++number) {
      if (bytes(number) % alignment == 0) {
        return number;
      }
    }
    return 0;
  }

  // The specification: sizes rise, each class holds what it is chosen for and no smaller one would, worst
  // waste.
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
