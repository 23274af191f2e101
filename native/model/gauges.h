// What the second pass of a fit counts with: threads as a model tells them apart, how much frees come in bursts, and where in a
// window something happens.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

namespace heapwright::model {

inline constexpr std::uint32_t kThreads = 64;  // threads a model tells apart at one time; more share

// Trace threads as those of the model: whoever starts after another has ended takes its place, so a thousand threads one after
// the other are one.
class Places {
 public:
  std::uint32_t of(std::uint32_t thread) {
    if (thread >= place_.size()) {
      place_.resize(thread + 1, kNone);
    }
    if (place_[thread] == kNone) {
      if (free_.empty()) {
        place_[thread] = used_ % kThreads;
        ++used_;
      } else {
        place_[thread] = free_.back();
        free_.pop_back();
      }
    }
    return place_[thread];
  }
  void end(std::uint32_t thread) {
    if (thread < place_.size() && place_[thread] != kNone) {
      free_.push_back(place_[thread]);
      place_[thread] = kNone;
    }
  }
  std::uint32_t count() const { return std::max(1U, std::min(used_, kThreads)); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  std::vector<std::uint32_t> place_;
  std::vector<std::uint32_t> free_;
  std::uint32_t used_ = 0;
};

// The effective number of equal portions that amounts come in: the square of their sum over the sum of their squares.
class Portions {
 public:
  void add(std::uint64_t bytes) { now_ += static_cast<double>(bytes) + 1; }
  void close() {
    sum_ += now_;
    squares_ += now_ * now_;
    now_ = 0;
  }
  std::uint64_t take() {
    close();
    const double portions = squares_ > 0 ? sum_ * sum_ / squares_ : 0;
    *this = Portions{};
    return static_cast<std::uint64_t>(std::llround(portions));
  }

 private:
  double now_ = 0;
  double sum_ = 0;
  double squares_ = 0;
};

// Threads of which the size classes are counted apart; those beyond share, the first, which is mostly main, with none.
inline constexpr std::uint32_t kGroups = 8;
inline std::uint32_t group_of(std::uint32_t place) {
  return place < kGroups ? place : 1 + (place - 1) % (kGroups - 1);
}

inline void count_thread(std::vector<std::pair<std::uint32_t, std::uint64_t>>& list, std::uint32_t thread) {
  const auto same =
      std::find_if(list.begin(), list.end(), [&](const auto& each) { return each.first == thread; });
  if (same == list.end()) {
    list.emplace_back(thread, 1);
  } else {
    ++same->second;
  }
}

// Where in a window something happens, on average, weighed by bytes.
class Place {
 public:
  void add(double at, std::uint64_t bytes, double sign = 1) {
    sum_ += sign * at * (static_cast<double>(bytes) + 1);
    weight_ += sign * (static_cast<double>(bytes) + 1);
  }
  std::uint64_t take() {
    const double mean = weight_ > 0.5 ? std::clamp(sum_ / weight_, 0.0, 1.0) : 0.5;
    *this = Place{};
    return static_cast<std::uint64_t>(std::llround(1000 * mean));
  }

 private:
  double sum_ = 0;
  double weight_ = 0;
};

}  // namespace heapwright::model
