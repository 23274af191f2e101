// Scales a model. `heap` multiplies the number of lifetimes at a time, and so live bytes and
// events. The few lifetimes of the script get larger instead of more numerous. `time` multiplies
// allocations and frees at the same live bytes: it multiplies the number of brief lifetimes, and in
// each window the number of long lifetimes that begin in place of others that end.
#pragma once

#include "model.h"

namespace heapwright::model {

// Both factors are above 0. Returns false if a window would have more than 2^30 ticks, which is too
// many to generate.
bool scale(Model& model, double heap, double time);
bool scale(RandMallocModel& model, double heap, double time);

}  // namespace heapwright::model
