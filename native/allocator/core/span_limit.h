// Decides how much memory the freed spans may have that a heap's depot keeps.
//
// The limit is the heap's share of the memory that free superblocks may hold
// (Pool::share_of_free_memory()). Taking a span from the region costs a lock, which other threads may
// hold. If the heap takes spans again that the depot refused within the purge delay, each kSpansPerMs
// of them raise the limit for a millisecond: so this costs some 2% of the time at most. The limit
// stays raised while the depot is in use: it has held at most the share at some time in the delay.
// A raised limit is kRaisedBytes, and none while the region does not purge: it would keep the memory,
// too. The memory of all depots is bounded also by the peak of memory in use (region.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "pool.h"

namespace heapwright::alloc {

class SpanLimit {
 public:
  static constexpr std::size_t kMin = 4;  // superblocks that a depot may always hold

  [[nodiscard]] bool allows(std::size_t superblocks) const { return superblocks <= superblocks_; }
  // Whether a depot of so many superblocks holds much if it lacks a span of the wanted length.
  [[nodiscard]] bool is_much(std::size_t superblocks) const {
    return superblocks > std::max(kMin, share_ / 2);
  }
  [[nodiscard]] std::size_t superblocks() const { return superblocks_; }
  // The least that the depot has held lately: call after_pop() when it holds less.
  [[nodiscard]] std::size_t low() const { return low_; }
  void reset() { *this = {}; }
  // The depot has refused a span. Returns whether it is time to decide anew.
  bool add_refused() {
    ++refused_;
    return refusals_++ % kRefusedPerDecision == 0;
  }
  // The heap has taken a span from the region.
  void add_taken() {
    if (refused_ > 0) {
      --refused_;
      ++premature_;
    }
  }
  // A span has left the depot, which holds `superblocks` now.
  void after_pop(std::size_t superblocks) { low_ = std::min(low_, superblocks); }
  // Decides anew, for a depot of `superblocks`. The caller holds the pool's lock.
  void update(const Pool& pool, std::size_t superblocks) {
    const std::uint64_t now = pool.region.settings.clock();
    const std::uint64_t delay = pool.region.settings.delay_ms;
    if (now - counted_since_ms_ >= delay) {
      refused_ = premature_ = 0;
      counted_since_ms_ = now;
    }
    share_ = pool.share_of_free_memory() / kSuperblockBytes;
    raised_until_ms_ = std::min(std::max(raised_until_ms_, now) + premature_ / kSpansPerMs, now + delay);
    premature_ %= kSpansPerMs;
    const bool is_in_use = now - low_since_ms_ < delay || low_ <= share_;
    raised_ = now < raised_until_ms_ || (raised_ && is_in_use);
    if (now - low_since_ms_ >= delay) {
      low_ = superblocks;
      low_since_ms_ = now;
    }
    const std::size_t raised =
        pool.region.may_purge() ? std::min(kRaisedBytes, kAllRaisedBytes / pool.heaps()) : SIZE_MAX;
    superblocks_ = std::max({kMin, share_, raised_ ? raised / kSuperblockBytes : 0});
  }

 private:
  static constexpr std::uint32_t kRefusedPerDecision = 16;
  static constexpr std::uint32_t kSpansPerMs = 8;
  // The raised limits of one heap and of all heaps together.
  static constexpr std::size_t kRaisedBytes = 16 * 1024 * 1024;
  static constexpr std::size_t kAllRaisedBytes = 64 * 1024 * 1024;

  std::size_t superblocks_ = kMin;
  std::size_t share_ = kMin;
  bool raised_ = false;
  std::size_t low_ = 0;  // the least that the depot has held
  std::uint64_t low_since_ms_ = 0;
  std::uint32_t refusals_ = 0;
  std::uint32_t refused_ = 0;    // not taken again so far
  std::uint32_t premature_ = 0;  // taken again
  std::uint64_t counted_since_ms_ = 0;
  std::uint64_t raised_until_ms_ = 0;
};

}  // namespace heapwright::alloc
