// Estimates how much memory the generation of a synthetic trace takes.
#include <algorithm>

#include "synth.h"

namespace heapwright::model {

namespace {

// Measured with models scaled to some millions of ticks or objects. A tick of the longest window
// took 131 to 305 bytes: its starts, ends and events, in lists that double as they grow. A damaged
// model may begin or end more lifetimes than it has ticks; these count as ticks. A live
// object took 90 to 100 bytes, including the bytes that packing keeps of it.
constexpr double kTickBytes = 320;
constexpr double kObjectBytes = 110;

double bytes_for(const RandMallocModel& model) {
  double objects = 0;
  double ticks = 0;
  for (const MeanClass& c : model.classes) {
    ticks += static_cast<double>(c.count);
  }
  for (const MeanClass& c : model.classes) {
    // A class never has more live objects than it allocates in all.
    const auto count = static_cast<double>(c.count);
    objects += std::min(count, count / std::max(ticks, 1.0) * static_cast<double>(c.lifetime));
  }
  return objects * kObjectBytes;
}

double bytes_for(const Model& model) {
  double objects = 0;
  double longest = 0;
  double alive = 0;
  for (const Window& window : model.windows) {
    double ended = 0;
    double begun = 0;
    for (const ClassActivity& row : window.rows) {
      alive += static_cast<double>(row.long_count);
      ended += static_cast<double>(row.old_ends());
      begun += static_cast<double>(row.begins());
    }
    objects = std::max(objects, alive);
    alive = std::max(0.0, alive - ended);
    longest = std::max(longest, std::max(static_cast<double>(window.ticks), begun + ended));
  }
  return objects * kObjectBytes + longest * kTickBytes;
}

}  // namespace

double memory_needed(const AnyModel& model) {
  return std::visit([](const auto& any) { return bytes_for(any); }, model);
}

}  // namespace heapwright::model
