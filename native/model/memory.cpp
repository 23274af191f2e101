// How much memory a made-up trace takes to make: told before it is begun.
#include <algorithm>

#include "synth.h"

namespace heapwright::model {

namespace {

// Seen with models scaled to some millions of either: 131 to 305 bytes a tick of the longest window (what begins and ends in it, and
// its events, in lists that double as they grow), 90 to 100 a live object (it, and what packing knows of it).
constexpr double kTickBytes = 320;
constexpr double kObjectBytes = 110;

}  // namespace

double memory_needed(const Plan& plan) {
  double objects = 0;
  double ticks = 0;
  for (const MeanClass& mean : plan.means) {
    ticks += static_cast<double>(mean.count);
  }
  for (const MeanClass& mean : plan.means) {
    // A class has no more alive than it makes at all.
    const auto count = static_cast<double>(mean.count);
    objects += std::min(count, count / std::max(ticks, 1.0) * static_cast<double>(mean.lifetime));
  }
  double longest = 0;
  double alive = 0;
  for (const Window& window : plan.model.windows) {
    double ended = 0;
    for (const Row& row : window.rows) {
      alive += static_cast<double>(row.long_count);
      ended += static_cast<double>(row.old_ends());
    }
    objects = std::max(objects, alive);
    alive = std::max(0.0, alive - ended);
    longest = std::max(longest, static_cast<double>(window.ticks));
  }
  return objects * kObjectBytes + longest * kTickBytes;
}

}  // namespace heapwright::model
