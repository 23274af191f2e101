// Counts for how long memory had each size, in bounded space, and gives quantiles over time.
//
// Sizes go into buckets, 256 for each power of two, so a bucket spans at most 0.4% of its sizes.
// A bucket keeps its largest size. So a quantile is never below the true one, at most 0.4% above
// it, and exact if memory is constant.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>

namespace heapwright::meter {

class SizeDurations {
 public:
  // Memory had this size, in bytes, for so many seconds.
  void add(std::uint64_t bytes, double seconds) {
    if (seconds <= 0) {
      return;
    }
    Bucket& bucket = buckets_[index_of(bytes)];
    bucket.largest = std::max(bucket.largest, bytes);
    bucket.seconds += seconds;
    seconds_ += seconds;
  }

  [[nodiscard]] bool empty() const { return buckets_.empty(); }
  [[nodiscard]] std::size_t buckets() const { return buckets_.size(); }

  // Returns the size that was not exceeded in this share of the time; 0 if nothing was added.
  [[nodiscard]] std::uint64_t quantile(double share) const {
    double below = 0;
    for (const auto& [index, bucket] : buckets_) {
      below += bucket.seconds;
      if (below >= share * seconds_) {
        return bucket.largest;
      }
    }
    return empty() ? 0 : buckets_.rbegin()->second.largest;
  }

 private:
  struct Bucket {
    std::uint64_t largest = 0;
    double seconds = 0;
  };

  static std::uint32_t index_of(std::uint64_t bytes) {
    const auto bits = static_cast<std::uint32_t>(std::bit_width(bytes));
    return bits <= 9 ? static_cast<std::uint32_t>(bytes)
                     : bits * 256 + static_cast<std::uint32_t>((bytes >> (bits - 9)) & 255);
  }

  std::map<std::uint32_t, Bucket> buckets_;
  double seconds_ = 0;
};

}  // namespace heapwright::meter
