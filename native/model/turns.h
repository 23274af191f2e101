// Whose turn it is: the ticks of a window dealt out to groups of threads, so many at a time that there are as many turns as were
// counted. Who is furthest behind is next, so all come to their ends together.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>

#include "cohort.h"
#include "model.h"

namespace heapwright::model {

class Turns {
 public:
  // How many ticks each has in the window, and how often turns change.
  Turns(const std::array<std::uint64_t, kGroups>& ticks, std::uint64_t changes) : ticks_(ticks) {
    const auto busy = static_cast<std::uint64_t>(
        std::count_if(ticks.begin(), ticks.end(), [](std::uint64_t each) { return each > 0; }));
    alone_ = busy < 2;
    ticks_left_ = std::accumulate(ticks.begin(), ticks.end(), std::uint64_t{0});
    turns_of_each_ =
        std::max(1.0, static_cast<double>(changes + 1) / static_cast<double>(std::max<std::uint64_t>(1, busy)));
  }

  std::uint64_t left() const { return ticks_left_; }
  // The group of the next tick; there must be one left.
  std::uint32_t next(Dice& dice) {
    --ticks_left_;
    if (left_ == 0) {
      change(dice);
    }
    --left_;
    ++done_[now_];
    return now_;
  }

 private:
  double progress(std::uint32_t group) const {
    return ticks_[group] == done_[group]
               ? 2
               : static_cast<double>(done_[group]) / static_cast<double>(ticks_[group]);
  }
  void change(Dice& dice) {
    now_ = 0;
    for (std::uint32_t group = 1; group < kGroups; ++group) {
      now_ = progress(group) < progress(now_) ? group : now_;
    }
    const std::uint64_t rest = ticks_[now_] - done_[now_];
    // Not all of one length, or they would meet in step.
    left_ = alone_ ? rest
                   : std::clamp<std::uint64_t>(whole(static_cast<double>(ticks_[now_]) / turns_of_each_ *
                                                     (0.5 + dice.uniform())),
                                               1, rest);
  }

  std::array<std::uint64_t, kGroups> ticks_;
  std::array<std::uint64_t, kGroups> done_{};
  double turns_of_each_ = 1;
  bool alone_ = true;
  std::uint64_t ticks_left_ = 0;
  std::uint32_t now_ = 0;
  std::uint64_t left_ = 0;  // of the turn
};

}  // namespace heapwright::model
