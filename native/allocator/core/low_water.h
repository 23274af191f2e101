// Tells how many free superblocks the program has not needed for a while: the lowest number that there
// were at any time of the last whole window.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace heapwright::alloc {

class LowWater {
 public:
  // The number of free superblocks has fallen to `count`.
  void after_fall(std::size_t count) {
    low_ = std::min(low_, count);
    unused_ = std::min(unused_, count);
  }
  // `purged` free superblocks were purged, and `count` are left.
  void after_purge(std::size_t purged, std::size_t count) {
    low_ -= std::min(low_, purged);
    unused_ -= std::min(unused_, purged);
    after_fall(count);
  }
  // Returns how many of `count` free superblocks were not needed in a window of at least `window_ms`,
  // which ended before `now` (milliseconds).
  std::size_t unused(std::size_t count, std::uint64_t now, std::uint64_t window_ms) {
    after_fall(count);
    if (now - begin_ms_ >= window_ms) {
      unused_ = begin_ms_ == 0 ? 0 : low_;
      low_ = count;
      begin_ms_ = now;
    }
    return unused_;
  }

 private:
  std::size_t low_ = 0;     // in the present window
  std::size_t unused_ = 0;  // in the last window, less those that were needed since then
  std::uint64_t begin_ms_ = 0;
};

}  // namespace heapwright::alloc
