// Schedules one window of a synthetic trace: for each group of threads, in order of its clock, when
// each lifetime begins, how long it is to last, and when lifetimes of older windows end.
//
// Everything is spread evenly over the window, each class and bin of lengths by itself, except the
// frees that come in bursts in the model. group_states.h keeps allocated and freed bytes in step
// while the window runs.
#pragma once

#include <array>
#include <vector>

#include "cohort.h"
#include "model.h"

namespace heapwright::model {

inline constexpr std::uint32_t kNoClass = ~std::uint32_t{0};

// A lifetime that is to begin.
struct ScheduledBegin {
  float at = 0;                   // position in the window, 0 to 1
  std::uint32_t size_class = 0;   // its class
  std::uint32_t from = kNoClass;  // it begins by realloc of a block of this class
  std::uint32_t length = 0;       // ticks of its group; kLong: it outlives the window
  float until = 0;                // position of its end, if its group frees in bursts; otherwise 0
  std::uint32_t freed_by = 0;     // group that ends it, if it does not outlive the window
};
inline constexpr std::uint32_t kLong = ~std::uint32_t{0};

// The end of a lifetime of an older window.
struct ScheduledEnd {
  float at = 0;
  std::uint32_t size_class = 0;
};

// The window of one group.
struct GroupSchedule {
  std::vector<ScheduledBegin> begins;
  std::vector<ScheduledEnd> ends;  // of lifetimes of any group
  bool timed = false;              // it has a clock of its own; otherwise positions are by all ticks
};
using WindowSchedule = std::array<GroupSchedule, kGroups>;

// Distributes brief lifetimes in the bin kAsClass over bins by the lengths of their class. Call it
// before schedule_window().
void spread_lengths(Window& window, const std::vector<SizeClass>& classes, double stretch);

// Schedules a window.
//   window   whose brief lifetimes have been spread
//   classes  of the model
//   stretch  factor of the lengths of brief lifetimes (Model::stretch)
//   rng      draws
WindowSchedule schedule_window(const Window& window, const std::vector<SizeClass>& classes, double stretch,
                               Rng& rng);

}  // namespace heapwright::model
