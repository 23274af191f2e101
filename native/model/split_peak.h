// Estimates the maximum over time of a sum over live objects, such as live bytes, from a sample.
//
// The maximum of an estimate is too high: it is where the estimate happens to be highest. So the
// sample is split at random into two halves that are independent samples of the program. The time
// of the maximum comes from one half and the value at that time from the other, and vice versa.
// Each such value is an unbiased estimate of the sum at a time, and so on average at most the
// maximum.
//
// The objects of a thread and of a group of sizes lie evenly in the sample, so their sum hardly
// varies. Two halves drawn at random would err in opposite directions. So the objects take turns:
// the halves have equally many of them.
//
// A half has an object with the chance q of half as many draws as the sample makes
// (trace/sample.h), so that the chance of the sample is 1 - (1 - q)². An object that is in nearly
// every sample is in both halves. An object of a half has the weight 1/q.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>

namespace heapwright::model {

// An object's uniform numbers, one for each half: the half has the object while q is higher.
using HalfDraws = std::array<double, 2>;

// The chance that a half has an object that the sample has with the chance `chance`.
inline double half_chance(double chance) { return chance < 1 ? -std::expm1(std::log1p(-chance) / 2) : 1; }

// Draws the numbers of an object of the sample, so at least one of them is below `q`.
//
// turn  between 0 and 1: tells which half has it
inline HalfDraws draw_halves(double q, double turn, std::mt19937_64& bits) {
  const auto uniform = [&bits] { return std::ldexp(static_cast<double>(bits() >> 11), -53); };
  const auto draw = [&](bool within) { return within ? q * uniform() : q + (1 - q) * uniform(); };
  const double which = (2 - q) * turn;  // q: both halves; 1 - q: the first alone; 1 - q: the second
  const bool first = which < 1;
  return {draw(first), draw(which < q || !first)};
}

// The sum of one quantity over time and its maximum.
class SplitPeak {
 public:
  // Adds an object to the sum, or takes it off.
  //
  // value  what to add; below 0 where an object is freed
  // q      the chance that a half has the object
  // draws  of the object
  void add(double value, double q, const HalfDraws& draws) {
    sampled_ += value;
    for (std::size_t half = 0; half < 2; ++half) {
      sums_[half] += draws[half] < q ? value / q : 0;
    }
  }

  // Ends the changes of one event.
  void note() {
    max_sampled_ = std::max(max_sampled_, sampled_);
    for (std::size_t half = 0; half < 2; ++half) {
      if (sums_[half] > highest_[half]) {
        highest_[half] = sums_[half];
        others_[half] = sums_[1 - half];
      }
    }
  }

  // Estimates the maximum. The result is at least the maximum of the sample itself.
  double estimate() const { return std::max((others_[0] + others_[1]) / 2, max_sampled_); }

 private:
  double sampled_ = 0;
  double max_sampled_ = 0;
  std::array<double, 2> sums_{};
  std::array<double, 2> highest_{};
  std::array<double, 2> others_{};  // the sum of the other half at the time of each maximum
};

}  // namespace heapwright::model
