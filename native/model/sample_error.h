// Computes how uncertain the estimates from a sample are (Horvitz and Thompson 1952). An object of
// weight w stands for w objects. If its choice is independent of that of others, it adds w (w - 1)
// to the variance of their number, and w (w - 1) s² to that of their bytes, s each. Small objects are
// not chosen independently (docs/trace-format.md), so the true errors are mostly smaller.
#pragma once

#include <cstdint>
#include <optional>

#include "trace/event.h"
#include "trace/json.h"

namespace heapwright::model {

// Estimates from a sample and their standard errors.
struct SampleError {
  std::uint64_t rate = 0;
  std::uint64_t objects = 0;  // in the sample
  double allocations = 0;
  double allocations_error = 0;
  double allocated_bytes = 0;  // at allocation
  double allocated_error = 0;
  // Maxima over time (split_peak.h). On average they are at most the true ones.
  double peak_live = 0;        // bytes
  double peak_live_error = 0;  // the standard error of live bytes at that time
  double peak_rounded = 0;     // bytes, each object rounded up to 16
  double peak_objects = 0;
};

// Reads a sample to its end. Returns nothing if the source is no sample.
std::optional<SampleError> sample_error(trace::EventSource& sample);

// Puts the estimates and their errors into the statistics of the complete trace that the sample
// stands for. They replace its maxima, which are too high because they are maxima of an estimate.
void put_estimates(trace::Json& statistics, SampleError error);

}  // namespace heapwright::model
