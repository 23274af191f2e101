// What happens in one window, in order, for each group of threads by its own clock: when each stay begins, how long it is to last,
// and when stays of older windows end. Everything is spread evenly over the window, each class and lifetime by itself, but for what
// the model says comes in bursts; windows_source.h keeps what is made and freed in step.
#pragma once

#include <array>
#include <vector>

#include "cohort.h"
#include "model.h"

namespace heapwright::model {

inline constexpr std::uint32_t kNoClass = ~std::uint32_t{0};

// A stay to begin; in the order of beginning.
struct ScheduledBegin {
  float at = 0;                   // where in the window, 0 to 1
  std::uint32_t size_class = 0;   // class
  std::uint32_t from = kNoClass;  // resized from a stay of this class
  std::uint32_t length = 0;       // ticks of its group; kLong: outlives the window
  float until = 0;                // where in the window it ends, where its group frees in bursts; else 0
  std::uint32_t freed_by = 0;     // group that ends it, where it does not outlive the window
};
inline constexpr std::uint32_t kLong = ~std::uint32_t{0};

// A stay of an older window to end.
struct ScheduledEnd {
  float at = 0;
  std::uint32_t size_class = 0;
};

// Of one group.
struct GroupSchedule {
  std::vector<ScheduledBegin> begins;
  std::vector<ScheduledEnd> ends;  // that it brings about, of whomever's stays
  bool timed = false;              // it has a clock of its own; else places are by all ticks
};
using WindowSchedule = std::array<GroupSchedule, kGroups>;

// Gives brief stays that are only known to be as all of their class their lengths; before schedule_window().
void spread_lengths(Window& window, const std::vector<SizeClass>& classes, double stretch);

WindowSchedule schedule_window(const Window& window, const std::vector<SizeClass>& classes, double stretch,
                               Rng& rng);

}  // namespace heapwright::model
