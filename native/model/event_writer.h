// Collects the events of a synthetic trace: gives them times, numbers for their threads and numbers
// for their objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trace/event.h"

namespace heapwright::model {

class EventWriter {
 public:
  // `threads`: how many threads the model tells apart.
  explicit EventWriter(std::size_t threads) : numbers_(threads) {}

  // Starts a window of so many nanoseconds.
  void start_window(double nanoseconds) {
    length_ = nanoseconds;
    progress_ = 0;
  }
  // Sets how much of the window is over, from 0 to 1: the time of the following events.
  void set_progress(double progress) { progress_ = progress; }
  double progress() const { return progress_; }
  void end_window() {
    since_ += length_;
    length_ = 0;
  }

  std::uint64_t new_object() { return objects_++; }

  // Adds an event by a thread of the model. If that thread is not in the trace now, a thread starts
  // first.
  void add(trace::Event event, std::uint32_t thread) {
    event.time = time();
    if (numbers_[thread] == 0) {
      numbers_[thread] = ++started_;
      if (started_ > 1) {
        trace::Event start;
        start.kind = trace::Kind::kThreadStart;
        start.thread = static_cast<std::uint32_t>(started_ - 1);
        start.time = event.time;
        events_.push_back(start);
      }
    }
    event.thread = static_cast<std::uint32_t>(numbers_[thread] - 1);
    events_.push_back(event);
  }

  // Whether a thread of the model is in the trace now and is not the first one, which never ends.
  bool can_end(std::uint32_t thread) const { return numbers_[thread] > 1; }
  // Ends such a thread. Later events of the same thread of the model are by a new thread of the
  // trace.
  void end_thread(std::uint32_t thread) {
    trace::Event end;
    end.kind = trace::Kind::kThreadEnd;
    end.thread = static_cast<std::uint32_t>(numbers_[thread] - 1);
    end.time = time();
    numbers_[thread] = 0;
    events_.push_back(end);
  }
  std::uint32_t threads() const { return static_cast<std::uint32_t>(numbers_.size()); }
  // A thread that is in the trace now, if there is one.
  std::uint32_t some_thread() const {
    std::uint32_t thread = 0;
    while (thread + 1 < numbers_.size() && numbers_[thread] == 0) {
      ++thread;
    }
    return thread;
  }

  // Takes the next event; false if all have been taken.
  bool take(trace::Event& event) {
    if (taken_ == events_.size()) {
      events_.clear();
      taken_ = 0;
      return false;
    }
    event = events_[taken_++];
    return true;
  }

 private:
  std::uint64_t time() const { return static_cast<std::uint64_t>(since_ + length_ * progress_); }

  std::vector<std::uint64_t>
      numbers_;                // by thread of the model: 1 + its number in the trace; 0: not in the trace now
  std::uint64_t started_ = 0;  // threads of the trace
  std::uint64_t objects_ = 0;
  double since_ = 0;     // nanoseconds, start of the window
  double length_ = 0;    // nanoseconds of the window
  double progress_ = 0;  // of the window, from 0 to 1
  std::vector<trace::Event> events_;
  std::size_t taken_ = 0;
};

}  // namespace heapwright::model
