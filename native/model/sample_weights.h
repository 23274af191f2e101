// The weights of a sample's objects, as they are counted (sample_statistics.h) and copied
// (sample_expander.h). An object that the sample has with the chance p stands for 1/p objects.
#pragma once

#include <cmath>
#include <cstdint>

#include "sample_block.h"

namespace heapwright::model {

// The weights of a block are adjusted to its ticks unless reallocs have a larger share of them:
// whether a sample has an object that is resized very often says little about the other ticks.
inline constexpr double kMaxResizes = 0.2;
// They are not adjusted either if the ticks are further off, in standard errors.
inline constexpr double kMaxErrors = 4;
// A thread may be this many times the rate behind the ticks of the program. It then has ticks to
// spare when a block has more allocations and resizes than ticks.
inline constexpr std::int64_t kMaxBehind = 16;

// Returns λ: the weights w of the block become w (1 + λ (w - 1)), so that they add up to its ticks.
// Of all linear changes this one changes least the weights that are known best.
//
// block      the block
// ahead      the ticks that were made for the blocks before, more than theirs
// weight_of  returns the weight of an object of the sample; 0 if it is not known
template <typename WeightOf>
double adjustment(const SampleBlock& block, std::int64_t ahead, const WeightOf& weight_of) {
  double ticks = static_cast<double>(block.slot_ticks) - static_cast<double>(ahead);
  double resizes = 0;
  double sum = 0;
  double variance = 0;
  for (const SampleItem& item : block.items) {
    const double weight = is_tick(item.event.kind) ? weight_of(item.event.object) : 0;
    if (weight == 0) {
      continue;
    }
    ticks += 1;
    if (item.event.kind == trace::Kind::kRealloc) {
      resizes += weight;
    } else {
      sum += weight;
      variance += weight * (weight - 1);
    }
  }
  const double off = ticks - resizes - sum;
  if (block.before_window || variance <= 0 || resizes > kMaxResizes * (sum + resizes) ||
      std::abs(off) > kMaxErrors * std::sqrt(variance)) {
    return 0;
  }
  return off / variance;
}

// The copies that an object of a weight gets, before they are rounded to a whole number.
inline double copies_of(double weight, double adjustment) {
  return std::fmax(0.0, weight * (1 + adjustment * (weight - 1)) - 1);
}

// The share of its copies that an object loses when it grows and so gets a smaller weight.
inline double share_lost(double before, double after) {
  return before <= 1 ? 0 : (before - after) / (before - 1);
}

}  // namespace heapwright::model
