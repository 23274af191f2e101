// Generates a synthetic trace from a model. The same model and seed make the same trace on every
// machine.
#pragma once

#include <memory>

#include "model_json.h"
#include "trace/event.h"

namespace heapwright::model {

// Returns a stream of events that follows the model. Memory grows with the live objects and with
// the events of one window.
std::unique_ptr<trace::EventSource> make_synthetic(AnyModel model, std::uint64_t seed);

// Estimates how many bytes of memory that takes.
double memory_needed(const AnyModel& model);

// The same for each kind of model.
std::unique_ptr<trace::EventSource> make_windows_source(Model model, std::uint64_t seed);
std::unique_ptr<trace::EventSource> make_rand_malloc_source(RandMallocModel model, std::uint64_t seed);

}  // namespace heapwright::model
