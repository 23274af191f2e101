// Scales a model. `heap` multiplies how many lifetimes exist at a time, and so live bytes and
// events. The few lifetimes of the script get larger instead of more. `time` multiplies the
// allocations and frees at the same live bytes: brief lifetimes, and of the long ones as many as
// are replaced by others.
#pragma once

#include "model.h"

namespace heapwright::model {

// Both factors are above 0. Returns false if a window would have more than 2^30 ticks, which is too
// many to generate.
bool scale(Model& model, double heap, double time);
bool scale(RandMallocModel& model, double heap, double time);

}  // namespace heapwright::model
