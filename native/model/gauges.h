// What the second pass of a fit counts with: threads as a model tells them apart, how much frees come in bursts, where in a
// window something happens, and all of that for a group of threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "model.h"

namespace heapwright::model {

inline constexpr std::uint32_t kMaxThreads = 64;  // threads a model tells apart at one time; more share

// Trace threads as those of the model: whoever starts after another has ended takes its place, so a thousand threads one after
// the other have one number.
class ThreadNumbers {
 public:
  std::uint32_t of(std::uint32_t thread) {
    if (thread >= place_.size()) {
      place_.resize(thread + 1, kNone);
    }
    if (place_[thread] == kNone) {
      if (free_.empty()) {
        place_[thread] = used_ % kMaxThreads;
        ++used_;
      } else {
        place_[thread] = free_.back();
        free_.pop_back();
      }
    }
    return place_[thread];
  }
  // The place it had; kNone where it never did anything.
  std::uint32_t end(std::uint32_t thread) {
    const std::uint32_t place = thread < place_.size() ? place_[thread] : kNone;
    if (place != kNone) {
      free_.push_back(place);
      place_[thread] = kNone;
    }
    return place;
  }
  std::uint32_t count() const { return std::max(1U, std::min(used_, kMaxThreads)); }
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

 private:
  std::vector<std::uint32_t> place_;
  std::vector<std::uint32_t> free_;
  std::uint32_t used_ = 0;
};

// The effective number of equal portions that amounts come in: the square of their sum over the sum of their squares. What comes
// at one tick is one portion.
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

// When something happens, on average, weighed by bytes.
class MeanTime {
 public:
  void add(std::uint64_t tick, std::uint64_t bytes, double sign = 1) {
    const double weight = sign * (static_cast<double>(bytes) + 1);
    sum_ += weight * (static_cast<double>(tick) + 0.5);
    weight_ += weight;
  }
  // In thousandths of so many ticks.
  std::uint64_t take(std::uint64_t ticks) {
    const double mean = weight_ > 0.5 && ticks > 0 ? sum_ / weight_ / static_cast<double>(ticks) : 0.5;
    *this = MeanTime{};
    return whole(1000 * std::clamp(mean, 0.0, 1.0));
  }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

// What of a group's doings is told by when it happens, by one clock.
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

// Bytes made less bytes ended since the window began.
class Balance {
 public:
  void add(std::uint64_t size) { now_ += static_cast<std::int64_t>(size); }
  void take_off(std::uint64_t size) { now_ -= static_cast<std::int64_t>(size); }
  // An event is over.
  void note_extremes() {
    most_ = std::max(most_, now_);
    least_ = std::min(least_, now_);
  }
  // The window is over.
  void take(GroupActivity& part) {
    part.above = static_cast<std::uint64_t>(most_);
    part.below = static_cast<std::uint64_t>(-least_);
    *this = Balance{};
  }

 private:
  std::int64_t now_ = 0;
  std::int64_t most_ = 0;
  std::int64_t least_ = 0;
};

// What a group of threads does in the window under way.
class Gauge {
 public:
  std::uint64_t clock() const { return clock_; }
  std::uint64_t ticks() const { return clock_ - since_; }  // in this window

  void begin(std::uint64_t size) {
    // Taken to outlive its window until it does not.
    long_at_.add(ticks(), size);
    ++clock_;
    balance_.add(size);
  }
  // One that it began in this window, at `clock`, ends.
  void ended_in_window(std::uint64_t clock, std::uint64_t size) { long_at_.add(clock - since_, size, -1); }
  // It ends one, of this window or older, by free or by realloc; at a tick of the window, of all.
  void end(std::uint64_t size, bool of_window, bool freed, std::uint64_t tick) {
    own_.end(size, of_window, freed, ticks());
    all_.end(size, of_window, freed, tick);
    ++ends_;
    balance_.take_off(size);
  }
  // An event is over.
  void note_extremes() { balance_.note_extremes(); }

  // The window is over.
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
  std::uint64_t clock_ = 0;  // stays begun
  std::uint64_t since_ = 0;  // when the window began
  std::uint64_t ends_ = 0;
  Balance balance_;
};

}  // namespace heapwright::model
