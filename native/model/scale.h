// A model of another size. `heap` multiplies how many stays there are at a time (and so live bytes, and with them events);
// scripted stays, which are few, get larger instead of more. `time` multiplies the coming and going at the same live bytes: the
// stays that come and end within a window, and of those that outlive theirs as many as are replaced by others.
#pragma once

#include "model.h"

namespace heapwright::model {

// Both factors are above 0. Returns false if a window would have more than 2^30 ticks, which is too many to generate.
bool scale(Model& model, double heap, double time);
bool scale(RandMallocModel& model, double heap, double time);

}  // namespace heapwright::model
