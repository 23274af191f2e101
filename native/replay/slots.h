// Places for live objects, while a trace is made ready: those of one thread, and those that threads share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace heapwright::replay {

inline constexpr std::size_t kEpochEvents = 4096;  // an epoch has no more: how far threads may drift apart

// A thread's own are handed out last in, first out, so that the table stays as small as the most that live at once.
class Slots {
 public:
  explicit Slots(std::uint64_t first = 0) : top_(first) {}
  std::uint64_t take() {
    if (free_.empty()) {
      return top_++;
    }
    const std::uint64_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give(std::uint64_t slot) { free_.push_back(static_cast<std::uint32_t>(slot)); }
  std::uint64_t top() const { return top_; }

 private:
  std::vector<std::uint32_t> free_;
  std::uint64_t top_;
};

// Shared slots are handed out first in, first out, and only once some have gathered: who takes the slot that another thread has
// just freed waits for that thread, and two of them would go in step.
class SharedSlots {
 public:
  std::uint64_t take() {
    if (free_.size() < kGathered) {
      return top_++;
    }
    const std::uint64_t slot = free_.front();
    free_.pop_front();
    return slot;
  }
  void give(std::uint64_t slot) { free_.push_back(static_cast<std::uint32_t>(slot)); }
  std::uint64_t top() const { return top_; }

 private:
  static constexpr std::size_t kGathered = 2 * kEpochEvents;
  std::deque<std::uint32_t> free_;
  std::uint64_t top_ = 0;
};

}  // namespace heapwright::replay
