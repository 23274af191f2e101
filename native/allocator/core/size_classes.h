// Maps sizes to size classes, with an executable specification.
//
// With P classes in each doubling (P = 4 here, granule 16):
//
//     16  32  48  64 | 80  96  112  128 | 160  192  224  256 | 320 ...      32 KiB
//     P classes by 16  P classes by 16    P classes by 32      by 64
//
// So above 16·P bytes a block is at most 1/(P+1) larger than the requested size plus one byte.
//
// Alignment and colours. Blocks lie at multiples of their class's size in a superblock, so a block
// of a class whose size is divisible by A is aligned to A. But then the first cache lines of all
// blocks of 1,024 bytes share a sixteenth of the sets of the processor's caches: a cache divides
// memory by the low bits of addresses. Programs often use the beginning of a block most. So the
// blocks of a superblock of some classes are shifted by a multiple of a cache line, its colour:
//
//     superblock of colour 0   ├ 1024 ┼ 1024 ┼ ─ ─
//                 of colour 1  ├64├ 1024 ┼ 1024 ┼ ─ ─
//                 of colour 2  ├─128┤ 1024 ┼ 1024 ┼ ─ ─
//
// These are the classes of multiples of 256 bytes up to 2 KiB. Blocks of such a size that need an
// alignment of more than a cache line come from classes of their own, which have one colour.
//
// Class numbers begin with 1; 0 means 'no class'. The aligned classes come first: number k has
// blocks of 256·k bytes.
#pragma once

#include <algorithm>
#include <array>
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
  static constexpr std::size_t kColouredStep = 256;
  static constexpr std::size_t kLargestColoured = 2048;
  static constexpr std::size_t kAlignedCount = kLargestColoured / kColouredStep;
  static constexpr std::size_t kSmallest = kAlignedCount + 1;  // the number of the class for 0 bytes
  static constexpr std::size_t kCount = kSmallest + kPerDoubling * (kDoublings + 1);  // with class 0
  // The sizes, by number.
  static constexpr std::array<std::uint32_t, kCount> kBytes = [] {
    std::array<std::uint32_t, kCount> sizes{};
    for (std::size_t number = 1; number < kSmallest; ++number) {
      sizes[number] = static_cast<std::uint32_t>(number * kColouredStep);
    }
    std::size_t size = 0;
    for (std::size_t i = 0; i < kCount - kSmallest; ++i) {
      size += kGranule << (std::max(i / kPerDoubling, std::size_t{1}) - 1);
      sizes[kSmallest + i] = static_cast<std::uint32_t>(size);
    }
    return sizes;
  }();

  // Returns the smallest class for `bytes`, which is at most kLargestClassBytes.
  static constexpr std::size_t of(std::size_t bytes) {
    const std::size_t last = bytes - (bytes != 0 ? 1 : 0);
    if (last < kGranule * kPerDoubling) {
      return last / kGranule + kSmallest;
    }
    const std::size_t shift = static_cast<std::size_t>(std::bit_width(last)) - 1 - kLogP;
    return (last >> shift) + (shift - 4) * kPerDoubling + kSmallest;
  }

  // Returns the size of a class's blocks in bytes.
  static constexpr std::size_t bytes(std::size_t number) { return kBytes[number]; }

  // Returns how many colours the superblocks of a class have: as many as there are cache lines in
  // the largest power of two that divides its size.
  static constexpr std::size_t colours(std::size_t number) {
    const std::size_t size = bytes(number);
    const bool coloured = number >= kSmallest && size % kColouredStep == 0 && size <= kLargestColoured;
    return coloured ? (std::size_t{1} << std::countr_zero(size)) / kCacheLineBytes : 1;
  }

  // Returns the smallest class whose blocks hold `size` bytes and lie at multiples of `alignment`,
  // a power of two; 0: there is none.
  //
  // Its blocks are at least `size` rounded up to the alignment. A class for that is aligned: sizes
  // are the multiples of a power of two, the step of their doubling. If the step is at least the
  // alignment, all of them are multiples of it; otherwise the rounded size is one of them.
  static constexpr std::size_t aligned(std::size_t size, std::size_t alignment) {
    const std::size_t rounded = (size + (size == 0 ? 1 : 0) + alignment - 1) & ~(alignment - 1);
    const std::size_t number = rounded <= kLargestClassBytes ? of(rounded) : 0;
    return alignment > kCacheLineBytes && number != 0 && colours(number) != 1 ? bytes(number) / kColouredStep
                                                                              : number;
  }

  // The specification: sizes rise; each size maps to the smallest class that holds it; waste is
  // within the bound; classes with free bits, which take an offset for a multiple of the size, have
  // one colour.
  static constexpr bool valid() {
    if (bytes(kCount - 1) != kLargestClassBytes) {
      return false;
    }
    for (std::size_t number = kSmallest; number < kCount; ++number) {
      const std::size_t size = bytes(number);
      const std::size_t below = number == kSmallest ? 0 : bytes(number - 1);
      if (size <= below || of(size) != number || of(below + 1) != number || size % kGranule != 0) {
        return false;
      }
      if (below >= kGranule * kPerDoubling && (size - below - 1) * (kPerDoubling + 1) > size) {
        return false;
      }
      if (size < kMinPurgedBytes && colours(number) != 1) {
        return false;
      }
    }
    return of(0) == kSmallest;
  }
  static_assert(valid());
};

}  // namespace heapwright::alloc
