// Decides how much memory a heap's depot may hold.
//
// The limit is the heap's share of the memory that free superblocks may hold (Pool::depot_share()).
// The lists that a full depot refuses return to superblocks, while the processor's caches hold
// their blocks. If the heap needs these blocks again within the purge delay, their return was
// premature, and its time is lost. Each premature return of kBytesPerMs raises the limit for a
// millisecond. So returning and taking again costs some 2% of the time at most, and a burst that
// recurs stays in the depot. There is no limit while the region does not purge: it would keep free
// superblocks, too. When it purges again, the limit returns only if the depot has held more than
// its share all the time for the purge delay, or if it has doubled: a depot that a burst empties
// now and then is in use.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "pool.h"
#include "size_classes.h"

namespace heapwright::alloc {

template <Configuration C>
class DepotLimit {
 public:
  static constexpr std::size_t kMinBytes = 128 * 1024;  // a depot may always hold this much

  [[nodiscard]] bool allows(std::size_t bytes) const { return bytes <= bytes_; }
  // Whether it is above the share, and has to be decided anew now and then.
  [[nodiscard]] bool may_fall() const { return raised_ || unlimited_; }
  // Whether it has fallen far below the `bytes` of a depot, so that half of them should return.
  [[nodiscard]] bool is_far_below(std::size_t bytes) const { return bytes - bytes / 5 > bytes_; }
  void reset() { *this = {}; }

  // A full depot has refused a list of about `blocks` blocks.
  void add_refused(std::size_t class_number, std::int64_t blocks) { refused_[class_number] += blocks; }
  // The heap has taken blocks from superblocks.
  void add_taken(std::size_t class_number, std::size_t blocks) {
    std::int64_t& refused = refused_[class_number];
    if (refused > 0) {
      const std::int64_t premature = std::min(refused, static_cast<std::int64_t>(blocks));
      refused -= premature;
      premature_bytes_ += static_cast<std::size_t>(premature) * Classes::bytes(class_number);
    }
  }
  // A list has left the depot, which holds `bytes` now.
  void after_pop(std::size_t bytes) { low_bytes_ = std::min(low_bytes_, bytes); }
  // Decides anew, for a depot of `bytes` and a heap with `free_bytes` in free blocks, those in the
  // depot included. The caller holds the pool's lock.
  void update(const Pool& pool, std::size_t bytes, std::size_t free_bytes) {
    const std::uint64_t now = pool.region.settings.clock();
    const std::uint64_t delay = pool.region.settings.delay_ms;
    if (now - counted_since_ms_ >= delay) {
      refused_ = {};
      counted_since_ms_ = now;
    }
    const std::uint64_t from = std::max(raised_until_ms_, now);
    raised_until_ms_ = std::min(from + premature_bytes_ / kBytesPerMs, now + delay);
    premature_bytes_ %= kBytesPerMs;
    const std::size_t share = pool.depot_share(free_bytes);
    raised_ = share != SIZE_MAX && now < raised_until_ms_;
    const bool unlimited =
        share == SIZE_MAX || (unlimited_ && bytes <= bytes_ && is_in_use(share, now, delay));
    if (share == SIZE_MAX) {
      bytes_ = std::max(kMinBytes, 2 * bytes);  // the heap looks again when the depot has doubled
    }
    if (share == SIZE_MAX || now - low_since_ms_ >= delay) {
      low_bytes_ = bytes;
      low_since_ms_ = now;
    }
    unlimited_ = unlimited;
    if (!unlimited) {
      bytes_ =
          std::max({kMinBytes, share, raised_ ? std::min(kRaisedBytes, kAllRaisedBytes / pool.heaps()) : 0});
    }
  }

 private:
  // Whether an unlimited depot has held at most its share at some time, or was not watched for
  // long.
  [[nodiscard]] bool is_in_use(std::size_t share, std::uint64_t now, std::uint64_t delay) const {
    return now - low_since_ms_ < delay || low_bytes_ <= share;
  }
  using Classes = SizeClasses<C::kClassesPerDoubling>;
  static constexpr std::size_t kBytesPerMs = 128 * 1024;
  // The raised limits of one heap and of all heaps together. Only an active heap lowers its limit
  // again, so an idle process may keep this much.
  static constexpr std::size_t kRaisedBytes = 16 * 1024 * 1024;
  static constexpr std::size_t kAllRaisedBytes = 64 * 1024 * 1024;

  std::size_t bytes_ = kMinBytes;
  bool raised_ = false;
  bool unlimited_ = false;
  std::size_t low_bytes_ = 0;  // the least that the depot has held
  std::uint64_t low_since_ms_ = 0;
  std::array<std::int64_t, Classes::kCount> refused_{};  // blocks of each class, not taken again so far
  std::size_t premature_bytes_ = 0;                      // taken again, and not yet paid for
  std::uint64_t counted_since_ms_ = 0;
  std::uint64_t raised_until_ms_ = 0;
};

}  // namespace heapwright::alloc
