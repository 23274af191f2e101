// How a sample chooses its objects, for the recorder and for samples of traces (docs/trace-format.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace heapwright::sample_choice {

// An object draws once, and once more for each of so many bytes. Smaller ones are small.
inline constexpr std::size_t kDrawBytes = 1024;
// Small objects are in groups of so many bytes, as the size classes of most allocators are. Larger
// ones are in four groups for each doubling.
inline constexpr std::size_t kGroupBytes = 16;
inline constexpr std::size_t kSmallGroups = kDrawBytes / kGroupBytes;
inline constexpr std::size_t kLargeGroups = 64;  // the last one has all larger sizes, too

constexpr std::size_t sample_group(std::uint64_t size) {
  if (size < kDrawBytes) {
    return size / kGroupBytes;
  }
  const auto doubling = static_cast<std::size_t>(std::bit_width(size / kDrawBytes) - 1);
  const auto quarter = static_cast<std::size_t>(size >> (8 + doubling)) & 3;
  return kSmallGroups + std::min(4 * doubling + quarter, kLargeGroups - 1);
}

// Numbers between 0 and 1 that lie evenly: any run of consecutive ones has its share of each part of
// the range, up to one or two, and so has every second, third and so on of them. (Every 233rd and
// larger Fibonacci numbers lie less evenly.) They are the fractions of start + k · golden ratio
// (Weyl 1916).
class EvenNumbers {
 public:
  void begin(std::uint64_t start) { at_ = start; }
  double next() {
    constexpr std::uint64_t kGoldenRatio = 0x9e3779b97f4a7c15U;  // its fraction, times 2^64
    at_ += kGoldenRatio;
    return static_cast<double>(at_ >> 11) / static_cast<double>(std::uint64_t{1} << 53);
  }

 private:
  std::uint64_t at_ = 0;
};

}  // namespace heapwright::sample_choice
