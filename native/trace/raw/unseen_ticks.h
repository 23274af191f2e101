// Estimates ticks that a recording of a sample does not count (docs/trace-format.md): those of
// threads that it has no object of, and those of older threads at the beginning of a window.
//
// Of threads without an object: the file's header has the sum of their ticks, but neither the
// threads nor the times. They are like those ended threads of which the sample has objects: of
// threads with t draws, a sample of rate N has a share
//
//     q = 1 - (1 - 1/N)^t
//
// if each request is chosen by itself. Small ones are chosen one of each N of a size, so a thread
// with requests of few sizes is seen more often, and long threads get somewhat too many ticks.
// So each ended thread in the file stands for (1 - q) / q times its own ticks more. By chance these
// add up to more or less than the sum, so all are scaled alike to it. That takes a pass over the
// file before the first event is read. If no thread in the file has ended, the sum belongs to the
// end of the trace.
//
// Of an older thread: its ticks in the window up to its first allocation in the file are unknown.
// So that allocation stands for as many ticks as its weight, 1 / p. This is right on average over
// all older threads, also those without an object, because the weights of sampled allocations add
// up to the ticks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "raw_file.h"
#include "trace/sample.h"

namespace heapwright::trace {

class UnseenTicks {
 public:
  UnseenTicks(const raw::RawFile& file, std::uint64_t rate);

  // Returns the ticks that a thread stands for beside its own.
  //
  // ticks    of the thread, from its start to its end
  // further  draws of its objects in the sample beyond one for each tick
  std::uint64_t take(std::uint64_t ticks, std::uint64_t further) {
    if (left_ == 0 || ticks == 0) {
      return 0;
    }
    rounding_ += scale_ * like(ticks, further);
    const double whole = std::min(std::floor(rounding_), static_cast<double>(left_));
    rounding_ -= whole;
    const auto taken = std::min(static_cast<std::uint64_t>(whole), left_);
    left_ -= taken;
    return taken;
  }

  // Returns the ticks before the first allocation of an older thread in the file.
  std::uint64_t before(std::uint64_t size) {
    before_ += 1 / chance(size, rate_) - 1;
    const double whole = std::floor(before_);
    before_ -= whole;
    return static_cast<std::uint64_t>(whole);
  }

  // Returns the ticks that no thread has taken.
  std::uint64_t take_rest() { return std::exchange(left_, 0); }

 private:
  static constexpr std::uint64_t kMax = std::uint64_t{1} << 62;  // more is damage

  // Returns the ticks that a thread of the file stands for, before they are scaled.
  [[nodiscard]] double like(std::uint64_t ticks, std::uint64_t further) const {
    const double seen = chance_of_draws(static_cast<double>(ticks) + static_cast<double>(further), rate_);
    return static_cast<double>(ticks) * (1 - seen) / seen;
  }

  std::uint64_t rate_;
  std::uint64_t left_ = 0;
  double scale_ = 0;
  double rounding_ = 0.5;
  double before_ = 0;  // the part of a tick that before() has not returned yet
};

}  // namespace heapwright::trace
