// Counts premature purges: those of memory that the program needs again within the purge delay, so
// that it pays for page faults. Run time of the process must pay for each of them (region.h,
// 'Premature purges'). All times are of the region's clock, in milliseconds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "config.h"
#include "inlining.h"

namespace heapwright::alloc {

class PrematurePurges {
 public:
  static constexpr std::uint64_t kMsPerSuperblock = 4;  // run time that pays for one superblock
  static constexpr std::uint64_t kMaxSavedMs = 10'000;  // run time saved up for later purges

  // Run time from now on can be saved up; the first call counts.
  void start(std::uint64_t now) { started_ms_ = started_ms_ == 0 ? now : started_ms_; }
  void add_purged(std::size_t bytes, std::uint64_t now, std::uint64_t delay_ms) {
    start(now);
    forget_old(now, delay_ms);
    purged_now_ += bytes;
  }
  // Whether memory that is obtained now may have been purged too early.
  [[nodiscard]] bool may_be() const { return purged_now_ + purged_before_ != 0; }
  // `bytes` were obtained from the kernel. `below_peak`: memory in use does not exceed its peak.
  HEAPWRIGHT_COLD void add_obtained(std::size_t bytes, std::uint64_t now, std::uint64_t delay_ms,
                                    bool below_peak) {
    forget_old(now, delay_ms);
    const std::size_t premature = std::min(bytes, purged_now_ + purged_before_);
    const std::size_t before = std::min(premature, purged_before_);
    purged_before_ -= before;
    purged_now_ -= premature - before;
    unpaid_bytes_ += premature;
    const std::uint64_t price = unpaid_bytes_ / kSuperblockBytes * kMsPerSuperblock;
    unpaid_bytes_ %= kSuperblockBytes;
    add(paid_at_ms_, now, price);
    if (below_peak) {
      add(paid_below_peak_at_ms_, now, price);
    }
  }
  // Whether all are paid for, and those while memory in use did not exceed its peak.
  [[nodiscard]] bool are_paid(std::uint64_t now) const { return paid_at_ms_ <= now; }
  [[nodiscard]] bool are_paid_below_peak(std::uint64_t now) const { return paid_below_peak_at_ms_ <= now; }
  // Purges so far are not premature: the program has asked for them.
  void forget_purged() { purged_now_ = purged_before_ = 0; }

 private:
  void add(std::uint64_t& paid_at_ms, std::uint64_t now, std::uint64_t price_ms) const {
    paid_at_ms = std::max({paid_at_ms, started_ms_, now - std::min(now, kMaxSavedMs)}) + price_ms;
  }
  // Forgets purges that are older than the delay.
  void forget_old(std::uint64_t now, std::uint64_t delay_ms) {
    const std::uint64_t half = delay_ms / 2;
    const std::uint64_t since = now - half_since_ms_;
    if (since < half) {
      return;
    }
    purged_before_ = since < 2 * half ? purged_now_ : 0;
    purged_now_ = 0;
    half_since_ms_ = now;
  }

  // Bytes purged in the present half of the delay and in the one before: premature if they are
  // needed again now.
  std::size_t purged_now_ = 0;
  std::size_t purged_before_ = 0;
  std::uint64_t half_since_ms_ = 0;  // the beginning of the present half
  std::uint64_t started_ms_ = 0;
  std::uint64_t paid_at_ms_ = 0;             // when run time has paid for all
  std::uint64_t paid_below_peak_at_ms_ = 0;  // for those while memory in use did not exceed its peak
  std::size_t unpaid_bytes_ = 0;             // premature, less than a superblock
};

}  // namespace heapwright::alloc
