// Chooses which thread begins a lifetime and which thread ends it, at random by the counts of the
// model.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cohort.h"
#include "model.h"

namespace heapwright::model {

class ThreadChooser {
 public:
  // `threads`: how many threads the model tells apart.
  ThreadChooser(std::uint32_t threads, Rng& rng) : threads_(threads), rng_(rng) {}

  // The thread that begins a lifetime of the class.
  std::uint32_t beginner(const SizeClass& c) {
    return c.threads.size() == 1 ? c.threads.front().first : draw(c.threads);
  }
  // The same for a realloc by `thread`: that thread, if it begins lifetimes of the class at all.
  std::uint32_t beginner(const SizeClass& c, std::uint32_t thread) {
    const bool own = std::any_of(c.threads.begin(), c.threads.end(),
                                 [&](const auto& each) { return each.first == thread; });
    return own ? thread : beginner(c);
  }
  // The thread of group `by` that frees a block of the class which the thread `maker` allocated.
  std::uint32_t freer(const SizeClass& c, std::uint32_t maker, std::uint32_t by) {
    const bool own = group_of(maker) == by;
    double sum = own ? static_cast<double>(c.freed_own) : 0;
    for (const auto& [thread, count] : c.freed_by) {
      sum += group_of(thread) == by ? static_cast<double>(count) : 0;
    }
    double left = sum == 0 || c.freed_by.empty() ? 0 : rng_.uniform() * sum;
    if (own) {
      left -= static_cast<double>(c.freed_own);
      if (left < 0 || sum == 0) {
        return maker;
      }
    }
    for (const auto& [thread, count] : c.freed_by) {
      if (group_of(thread) == by) {
        left -= static_cast<double>(count);
        if (left < 0) {
          return thread;
        }
      }
    }
    return own ? maker : std::min(by, threads_ - 1);
  }

 private:
  std::uint32_t draw(const std::vector<std::pair<std::uint32_t, std::uint64_t>>& threads) {
    double sum = 0;
    for (const auto& [thread, count] : threads) {
      sum += static_cast<double>(count);
    }
    double left = rng_.uniform() * sum;
    for (const auto& [thread, count] : threads) {
      left -= static_cast<double>(count);
      if (left < 0) {
        return thread;
      }
    }
    return threads.back().first;
  }

  std::uint32_t threads_;
  Rng& rng_;
};

}  // namespace heapwright::model
