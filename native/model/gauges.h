// Holds the measuring instruments of the second pass of a fit: numbers of threads, bursts of frees,
// mean positions in a window, bounds of live bytes, and all of these for one group of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "model.h"

namespace heapwright::model {

inline constexpr std::uint32_t kMaxThreads =
    64;  // threads that a model tells apart at one time; further ones share numbers

// Maps threads of the trace to threads of the model. A thread that starts after another has ended
// takes its number. So a thousand threads that run one after the other have one number.
class ThreadNumbers {
 public:
  std::uint32_t of(std::uint32_t thread) {
    if (thread >= number_.size()) {
      number_.resize(thread + 1, kNone);
    }
    if (number_[thread] == kNone) {
      if (free_.empty()) {
        number_[thread] = used_ % kMaxThreads;
        ++used_;
      } else {
        number_[thread] = free_.back();
        free_.pop_back();
      }
    }
    return number_[thread];
  }
  // Frees the number of a thread and returns it; kNone if the thread never did anything.
  std::uint32_t end(std::uint32_t thread) {
    const std::uint32_t number = thread < number_.size() ? number_[thread] : kNone;
    if (number != kNone) {
      free_.push_back(number);
      number_[thread] = kNone;
    }
    return number;
  }
  std::uint32_t count() const { return std::max(1U, std::min(used_, kMaxThreads)); }
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

 private:
  std::vector<std::uint32_t> number_;
  std::vector<std::uint32_t> free_;
  std::uint32_t used_ = 0;
};

// Counts the effective number of equal portions in which amounts come: the square of their sum
// divided by the sum of their squares. All amounts of one tick are one portion.
class Portions {
 public:
  void add(std::uint64_t bytes, std::uint64_t tick) {
    if (tick != tick_) {
      close();
      tick_ = tick;
    }
    now_ += static_cast<double>(bytes) + 1;
  }
  std::uint64_t take() {
    close();
    const double portions = squares_ > 0 ? sum_ * sum_ / squares_ : 0;
    *this = Portions{};
    return whole(portions);
  }

 private:
  void close() {
    sum_ += now_;
    squares_ += now_ * now_;
    now_ = 0;
  }

  std::uint64_t tick_ = 0;
  double now_ = 0;
  double sum_ = 0;
  double squares_ = 0;
};

inline void count_thread(std::vector<std::pair<std::uint32_t, std::uint64_t>>& list, std::uint32_t thread) {
  const auto same =
      std::find_if(list.begin(), list.end(), [&](const auto& each) { return each.first == thread; });
  if (same == list.end()) {
    list.emplace_back(thread, 1);
  } else {
    ++same->second;
  }
}

// The mean time of events, weighed by bytes.
class MeanTime {
 public:
  void add(std::uint64_t tick, std::uint64_t bytes, double sign = 1) {
    const double weight = sign * (static_cast<double>(bytes) + 1);
    sum_ += weight * (static_cast<double>(tick) + 0.5);
    weight_ += weight;
  }
  // Returns the mean in thousandths of so many ticks, and starts anew.
  std::uint64_t take(std::uint64_t ticks) {
    const double mean = weight_ > 0.5 && ticks > 0 ? sum_ / weight_ / static_cast<double>(ticks) : 0.5;
    *this = MeanTime{};
    return whole(1000 * std::clamp(mean, 0.0, 1.0));
  }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

// When a group ends lifetimes in a window, by one clock.
struct Times {
  Portions brief;
  Portions old;
  MeanTime old_at;
  void end(std::uint64_t size, bool of_window, bool freed, std::uint64_t tick) {
    if (!of_window) {
      old_at.add(tick, size);
    }
    if (freed) {
      (of_window ? brief : old).add(size, tick);
    }
  }
  void take(GroupActivity& part, std::uint64_t ticks) {
    part.brief_bursts = brief.take();
    part.old_bursts = old.take();
    part.old_at = old_at.take(ticks);
  }
};

// The bytes allocated less the bytes freed since the window began, and its extremes.
class Balance {
 public:
  void add(std::uint64_t size) { now_ += static_cast<std::int64_t>(size); }
  void take_off(std::uint64_t size) { now_ -= static_cast<std::int64_t>(size); }
  // Call after each event, not between the two steps of a realloc.
  void note_extremes() {
    max_ = std::max(max_, now_);
    min_ = std::min(min_, now_);
  }
  // Stores the extremes at the end of the window, and starts anew.
  void take(GroupActivity& part) {
    part.above = static_cast<std::uint64_t>(max_);
    part.below = static_cast<std::uint64_t>(-min_);
    *this = Balance{};
  }

 private:
  std::int64_t now_ = 0;
  std::int64_t max_ = 0;
  std::int64_t min_ = 0;
};

// Measures a group of threads in the current window.
class Gauge {
 public:
  std::uint64_t clock() const { return clock_; }
  std::uint64_t ticks() const { return clock_ - since_; }  // in this window

  void begin(std::uint64_t size) {
    // Assume that it outlives the window; ended_in_window() corrects this if it does not.
    long_at_.add(ticks(), size);
    ++clock_;
    balance_.add(size);
  }
  // A lifetime that the group began in this window, at `clock`, ends.
  void ended_in_window(std::uint64_t clock, std::uint64_t size) { long_at_.add(clock - since_, size, -1); }
  // The group ends a lifetime.
  //   size       bytes
  //   of_window  whether the lifetime began in this window
  //   freed      by free; otherwise by realloc
  //   tick       of the window, by the ticks of all groups
  void end(std::uint64_t size, bool of_window, bool freed, std::uint64_t tick) {
    own_.end(size, of_window, freed, ticks());
    all_.end(size, of_window, freed, tick);
    ++ends_;
    balance_.take_off(size);
  }
  // Call after each event.
  void note_extremes() { balance_.note_extremes(); }

  // Returns the figures of a window of so many ticks of all groups, and starts anew.
  GroupActivity take(std::uint64_t window_ticks) {
    GroupActivity part;
    GroupActivity by_all;
    own_.take(part, ticks());
    all_.take(by_all, window_ticks);
    if (!has_clock(ticks(), ends_)) {
      part = by_all;
    }
    part.long_at = long_at_.take(ticks());
    balance_.take(part);
    since_ = clock_;
    ends_ = 0;
    return part;
  }

 private:
  Times own_;
  Times all_;
  MeanTime long_at_;
  std::uint64_t clock_ = 0;  // lifetimes begun, in all windows
  std::uint64_t since_ = 0;  // value of clock_ when the window began
  std::uint64_t ends_ = 0;
  Balance balance_;
};

}  // namespace heapwright::model
