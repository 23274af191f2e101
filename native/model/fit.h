// Fits a windows model to a trace, in two passes.
//
// The first pass (layout.h) chooses windows, size classes and the sizes of the script; for that it
// needs the number of ticks, the peak of live bytes, bursts of frees and all sizes. The second pass
// counts. If the JSON of the model is too large, classes are merged (merge.h); if that is not
// enough, both passes run again with fewer windows. Memory grows with the live objects and with
// windows times classes.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "model.h"
#include "trace/event.h"

namespace heapwright::model {

struct FitOptions {
  std::uint64_t windows = 200;
  std::uint64_t script = 800;  // lifetimes kept one by one, at most
  std::size_t bytes = 150000;  // of the JSON, at most
  std::uint64_t sample = 0;    // the rate of the sample that the trace was expanded from; 0: it is complete
};

// Opens the trace from its start; nullptr if that fails.
using Opener = std::function<std::unique_ptr<trace::EventSource>()>;

// Fits a model.
//   open     opens the trace; called at least twice
//   options  limits of the model
//   model    receives the model
//   loss     receives what could not be read of the trace
//   error    receives one line if the trace cannot be opened twice or has no allocation; the
//            result is then false
bool fit(const Opener& open, const FitOptions& options, Model& model, trace::Loss& loss, std::string& error);

}  // namespace heapwright::model
