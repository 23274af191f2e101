// Counts the complete trace that a sample stands for, without making it: an object of the sample
// counts as often as its weight says. So the time depends on the sample, not on the program. The
// sample expander (sample_expander.h) makes that trace, with the same weights.
#pragma once

#include "statistics.h"
#include "trace/event.h"

namespace heapwright::model {

// Reads a sample to its end. Its estimates of the maxima are too high, because they are maxima of
// an estimate; sample_error.h has better ones.
//
// sample      a sample (trace::Header::sample is not 0)
// statistics  receives the counts; made with the rate of the sample
void count_sample(trace::EventSource& sample, Statistics& statistics);

}  // namespace heapwright::model
