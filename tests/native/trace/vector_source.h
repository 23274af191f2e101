// A trace in memory as a source of events, for tests and fuzz harnesses.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "trace/event.h"

namespace heapwright::trace {

class VectorSource : public EventSource {
 public:
  explicit VectorSource(std::vector<Event> events, Header header = {})
      : events_(std::move(events)), header_(std::move(header)) {}
  const Header& header() const override { return header_; }
  Loss loss() const override { return {}; }
  bool next(Event& event) override {
    if (at_ == events_.size()) {
      return false;
    }
    event = events_[at_++];
    return true;
  }

 private:
  std::vector<Event> events_;
  Header header_;
  std::size_t at_ = 0;
};

}  // namespace heapwright::trace
