// Fuzzes the reader of packed traces: events stay within their bounds, and every tool that reads a
// trace terminates.
#include "trace/packed.h"

#include "judge.h"
#include "model/fit.h"
#include "model/model_json.h"
#include "model/statistics.h"
#include "model/statistics_json.h"
#include "replay/expand.h"
#include "sections.h"
#include "trace_tool/open.h"

namespace {

using namespace heapwright;

fuzz::SeenKinds seen;

// Counts the events, and checks threads and object numbers. A reader of packed traces does not
// promise that a freed or resized object is alive, and no tool relies on that.
std::uint64_t count(trace::EventSource& source) {
  std::uint64_t events = 0;
  std::uint64_t made = 0;
  for (trace::Event event; source.next(event); ++events) {
    seen.add(event.kind);
    PROMISE(event.thread <= events + trace::kThreadsAhead);
    if (is_allocation(event.kind)) {
      PROMISE(event.object == made);
      ++made;
    }
  }
  (void)source.loss();
  return events;
}

}  // namespace

extern "C" bool heapwright_corpus_is_complete() { return seen.is_complete(); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::MemoryFile file(fuzz::mended({reinterpret_cast<const char*>(data), size}));
  std::string error;
  const auto source = trace::open_packed(file.path(), error);
  PROMISE((source == nullptr) != error.empty());
  if (source == nullptr) {
    return 0;
  }
  const std::uint64_t events = count(*source);
  if (events > 20000) {
    return 0;  // the reader is what this fuzzer tests; the tools below take seconds under sanitizers
  }
  model::Statistics statistics(source->header().page_size);
  const auto again = trace::open_packed(file.path(), error);
  for (trace::Event event; again->next(event);) {
    statistics.add(event);
  }
  PROMISE(trace::to_line(model::to_json(statistics, again->header(), again->loss(), size)).starts_with('{'));
  replay::Expanded done;
  (void)replay::expand([&](std::string& why) { return trace::open_trace(file.path(), why); },
                       fuzz::scratch() + "/ops", done, error);
  (void)::unlink((fuzz::scratch() + "/ops").c_str());
  model::Model model;
  trace::Loss loss;
  model::FitOptions options;
  options.windows = 8;
  if (model::fit([&] { return trace::open_trace(file.path(), error); }, options, model, loss, error)) {
    (void)model::to_json(model);
  }
  return 0;
}
