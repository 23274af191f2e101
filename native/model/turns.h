// Deals the ticks of a window out to the groups of threads, in as many turns as the model counted.
// The group that is furthest behind gets the next turn, so all groups finish together.
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
  // ticks: of each group in the window. turns: of all groups together. last: the group that had the
  // last turn before.
  Turns(const std::array<std::uint64_t, kGroups>& ticks, std::uint64_t turns, std::uint32_t last)
      : ticks_(ticks), now_(last) {
    const auto busy = static_cast<std::uint64_t>(
        std::count_if(ticks.begin(), ticks.end(), [](std::uint64_t each) { return each > 0; }));
    one_group_ = busy < 2;
    ticks_left_ = std::accumulate(ticks.begin(), ticks.end(), std::uint64_t{0});
    turns_of_each_ = std::max<std::uint64_t>(1, (turns + busy / 2) / std::max<std::uint64_t>(1, busy));
  }

  std::uint64_t left() const { return ticks_left_; }
  std::uint32_t last() const { return now_; }
  // Returns the group of the next tick. There must be a tick left.
  std::uint32_t next(Rng& rng) {
    --ticks_left_;
    if (left_ == 0) {
      next_turn(rng);
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
  void next_turn(Rng& rng) {
    for (std::uint32_t group = 0; group < kGroups; ++group) {
      now_ = progress(group) < progress(now_) ? group : now_;
    }
    // Vary the lengths of turns; with equal lengths the groups would run in lockstep.
    const std::uint64_t turn = ++turns_[now_];
    const double up_to = turn < turns_of_each_ && !one_group_
                             ? static_cast<double>(turn) + rng.uniform() - 0.5
                             : static_cast<double>(turns_of_each_);
    const auto ticks = static_cast<double>(ticks_[now_]);
    const std::uint64_t end = whole(ticks * up_to / static_cast<double>(turns_of_each_));
    left_ = std::clamp<std::uint64_t>(end, done_[now_] + 1, ticks_[now_]) - done_[now_];
  }

  std::array<std::uint64_t, kGroups> ticks_;
  std::array<std::uint64_t, kGroups> done_{};
  std::array<std::uint64_t, kGroups> turns_{};  // turns that each group has had
  std::uint64_t turns_of_each_ = 1;
  bool one_group_ = true;
  std::uint64_t ticks_left_ = 0;
  std::uint32_t now_ = 0;   // the group whose turn it is
  std::uint64_t left_ = 0;  // ticks of the turn
};

}  // namespace heapwright::model
