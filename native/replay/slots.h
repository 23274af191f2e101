// Assigns slots to live objects while a trace is made ready for replay: slots of one thread, and
// slots that threads share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace heapwright::replay {

inline constexpr std::size_t kEpochEvents =
    4096;  // events of an epoch, at most: limits how far threads drift apart

// Slots of one thread. The most recently freed slot is reused first, so the table has no more slots
// than objects live at once.
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

// Slots that threads share. The slot that was freed first is reused first, and only once kMinFree
// slots are free. A thread that takes a slot which another thread has just freed must wait for that
// thread, and the two would run in lockstep.
class SharedSlots {
 public:
  std::uint64_t take() {
    if (free_.size() < kMinFree) {
      return top_++;
    }
    const std::uint64_t slot = free_.front();
    free_.pop_front();
    return slot;
  }
  void give(std::uint64_t slot) { free_.push_back(static_cast<std::uint32_t>(slot)); }
  std::uint64_t top() const { return top_; }

 private:
  static constexpr std::size_t kMinFree = 2 * kEpochEvents;
  std::deque<std::uint32_t> free_;
  std::uint64_t top_ = 0;
};

}  // namespace heapwright::replay
