// Keeps freed spans whole, by length, for the next span of the same length. See 'Freed spans' in
// region.h. A span's first superblock links it to the next. The caller holds the pool's lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "inlining.h"
#include "superblock.h"

namespace heapwright::alloc {

class FreedSpans {
 public:
  static constexpr std::size_t kLongest = kLargestSpanBytes / kSuperblockBytes;  // superblocks

  // The fast paths. They do nothing, and return false or nullptr, if the number of superblocks would leave
  // the bounds.
  HEAPWRIGHT_INLINE bool put_quickly(Superblock* span) {
    const std::size_t length = span->length;
    if (length > kLongest) {
      return false;
    }
    if (static_cast<std::int64_t>(superblocks_ + length) > max_superblocks_) {
      if (above_max_ == 0) {
        return false;
      }
      --above_max_;
    }
    set_kind(span, Kind::kFree);
    put(span);
    return true;
  }
  HEAPWRIGHT_INLINE Superblock* take_quickly(std::size_t length) {
    return static_cast<std::int64_t>(superblocks_ - length) >= min_superblocks_ ? take(length) : nullptr;
  }
  // `above_most`: how many spans the fast path may put nevertheless.
  void set_bounds(std::int64_t least, std::int64_t most, std::uint32_t above_most) {
    min_superblocks_ = least;
    max_superblocks_ = most;
    above_max_ = above_most;
  }
  // How many superblocks all spans have together.
  [[nodiscard]] std::size_t superblocks() const { return superblocks_; }
  // Keeps a span of at most kLongest superblocks.
  void put(Superblock* span) {
    span->next = first_[span->length];
    first_[span->length] = span;
    superblocks_ += span->length;
  }
  // Takes the latest span of a length; nullptr: there is none.
  Superblock* take(std::size_t length) {
    Superblock* const span = first_[length];
    if (span != nullptr) {
      first_[length] = span->next;
      superblocks_ -= length;
    }
    return span;
  }
  // Takes all spans and calls f(span) for each: of a length, the oldest first.
  template <class F>
  void take_all(F f) {
    for (std::size_t length = 1; superblocks_ > 0; ++length) {
      Superblock* oldest_first = nullptr;
      while (Superblock* const span = take(length)) {
        span->next = oldest_first;
        oldest_first = span;
      }
      while (oldest_first != nullptr) {
        Superblock* const next = oldest_first->next;
        f(oldest_first);
        oldest_first = next;
      }
    }
  }

 private:
  std::array<Superblock*, kLongest + 1> first_{};  // by length, the latest first
  std::size_t superblocks_ = 0;
  std::int64_t min_superblocks_ = INT64_MAX;  // bounds of the fast paths
  std::int64_t max_superblocks_ = -1;
  std::uint32_t above_max_ = 0;
};

}  // namespace heapwright::alloc
