// Holds events that a source has made and not yet returned.
#pragma once

#include <cstddef>
#include <vector>

#include "event.h"

namespace heapwright::trace {

class PendingEvents {
 public:
  void push(const Event& event) { events_.push_back(event); }
  // Takes the oldest event. Returns false if there is none.
  bool pop(Event& event) {
    if (at_ == events_.size()) {
      events_.clear();
      at_ = 0;
      return false;
    }
    event = events_[at_++];
    return true;
  }

 private:
  std::vector<Event> events_;
  std::size_t at_ = 0;  // of the next event to take
};

}  // namespace heapwright::trace
