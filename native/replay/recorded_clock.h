// Decides at which recorded times the replayer sets the clock and takes readings, and writes the
// words for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops.h"

namespace heapwright::replay {

class RecordedClock {
 public:
  // duration  of the trace, in nanoseconds
  explicit RecordedClock(std::uint64_t duration)
      : reading_interval_(std::max<std::uint64_t>(duration / kReadings, 1)),
        step_(std::max(kStep, duration / kSteps)),
        next_reading_(reading_interval_),
        next_step_(step_) {}

  bool reading_due(std::uint64_t time) const { return time >= next_reading_; }
  bool step_due(std::uint64_t time) const { return time >= next_step_; }

  Word reading(std::uint64_t time) {
    readings_++;
    last_reading_ = time;
    next_reading_ = time + reading_interval_;
    next_step_ = time + step_;
    return clock_word(time, true);
  }
  Word step(std::uint64_t time) {
    next_step_ = time + step_;
    return clock_word(time, false);
  }

  std::uint64_t readings() const { return readings_; }
  std::uint64_t last_reading() const { return last_reading_; }

 private:
  static constexpr std::uint64_t kReadings = 500;  // of resident memory over the whole trace
  // The clock advances by at least so many nanoseconds, and at most so often in a trace.
  static constexpr std::uint64_t kStep = 100'000;
  static constexpr std::uint64_t kSteps = 1 << 20;

  std::uint64_t reading_interval_;
  std::uint64_t step_;
  std::uint64_t next_reading_;
  std::uint64_t next_step_;
  std::uint64_t last_reading_ = 0;
  std::uint64_t readings_ = 0;
};

}  // namespace heapwright::replay
