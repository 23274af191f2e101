// From a trace to its model, in two passes: the first finds what everything is laid out by (ticks, the peak, bursts of frees,
// sizes), the second counts. Memory: live objects, and windows times classes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model.h"
#include "trace/event.h"

namespace heapwright::model {

struct FitOptions {
  std::uint64_t windows = 200;
  std::uint64_t script = 800;  // stays kept one by one, at most
  std::size_t bytes = 150000;  // of JSON, at most; classes are merged until it fits
};

// Opens the trace anew; nullptr where that fails.
using Opener = std::function<std::unique_ptr<trace::EventSource>()>;

// The model, with what the trace has lost in `loss`. False with a line in `error` where the trace cannot be opened twice or has
// no allocation.
bool fit(const Opener& open, const FitOptions& options, Model& model, trace::Loss& loss, std::string& error);

}  // namespace heapwright::model
