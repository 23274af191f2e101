// Assigns lanes (ops.h) to threads while a trace is made ready for replay.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "slots.h"

namespace heapwright::replay {

class Lanes {
 public:
  // Returns a free lane for a thread that `by` starts. A lane that became free in this epoch goes
  // only to a thread started by the one that joined its last thread. Other threads are not ordered
  // after that join, and could wait for the lane forever.
  std::uint32_t take(std::uint32_t by) {
    const auto own =
        std::find_if(freed_.rbegin(), freed_.rend(), [by](const FreedLane& l) { return l.by == by; });
    auto lane = static_cast<std::uint32_t>(slots_.size());
    if (own != freed_.rend()) {
      lane = own->lane;
      freed_.erase(std::next(own).base());
    } else if (!free_.empty()) {
      lane = free_.back();
      free_.pop_back();
    } else {
      slots_.emplace_back(1);  // slot 0 is for objects that are never used again
    }
    return lane;
  }
  // Frees the lane of a thread that has ended and that thread `by` has joined.
  void give(std::uint32_t lane, std::uint32_t by) { freed_.push_back({lane, by}); }
  // Lets any thread take the lanes that are free now.
  void begin_epoch() {
    for (const FreedLane& freed : freed_) {
      free_.push_back(freed.lane);
    }
    freed_.clear();
  }

  Slots& slots(std::uint32_t lane) { return slots_[lane]; }
  const std::vector<Slots>& all() const { return slots_; }

 private:
  // A lane whose thread has ended in this epoch.
  struct FreedLane {
    std::uint32_t lane;
    std::uint32_t by;  // the thread that joined it
  };

  std::vector<Slots> slots_;         // of each lane
  std::vector<std::uint32_t> free_;  // since an earlier epoch
  std::vector<FreedLane> freed_;
};

}  // namespace heapwright::replay
