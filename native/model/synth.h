// A trace made up from a model. The same model and seed make the same trace on every machine.
#pragma once

#include <memory>

#include "plan.h"
#include "trace/event.h"

namespace heapwright::model {

// A stream of events that follows the plan's model; memory grows with live objects and with the events of one window.
std::unique_ptr<trace::EventSource> make_synthetic(Plan plan);

// About how many bytes of memory that takes.
double memory_needed(const Plan& plan);

// The two kinds.
std::unique_ptr<trace::EventSource> make_windows_source(Model model, std::uint64_t seed);
std::unique_ptr<trace::EventSource> make_rand_malloc_source(std::vector<MeanClass> means,
                                                            std::uint64_t nanoseconds, std::uint64_t seed);

}  // namespace heapwright::model
