// Fuzzes packing, statistics, models and replays with arbitrary valid traces. Unpacking gives the
// same events. Statistics and the fitted model agree. The replayer's operations can be played in
// any order that the threads may take.
#include "../../native/replay/ops_model.h"
#include "imagine.h"
#include "model/fit.h"
#include "model/statistics.h"
#include "replay/expand.h"
#include "trace/packed.h"
#include "trace_tool/open.h"

using namespace heapwright;
using trace::Event;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input in(data, size);
  const std::uint32_t block = 1 + in.byte();
  const std::vector<Event> events = fuzz::imagine(in);
  const std::string path = fuzz::scratch() + "/events";
  std::string error;
  const auto writer = trace::PackedWriter::create(path, fuzz::imagined_header(), error, 1, block);
  PROMISE(writer != nullptr);
  for (const Event& event : events) {
    PROMISE(writer->add(event));
  }
  PROMISE(writer->finish({}));
  const auto source = trace::open_packed(path, error);
  PROMISE(source != nullptr && source->summary() != nullptr && source->summary()->events == events.size());
  Event found;
  for (const Event& event : events) {
    PROMISE(source->next(found) && found == event);
  }
  PROMISE(!source->next(found) && source->loss().why.empty());

  model::Statistics statistics;
  for (const Event& event : events) {
    statistics.add(event);
  }
  PROMISE(statistics.events == events.size());
  replay::Expanded done;
  const bool expanded = replay::expand([&](std::string& why) { return trace::open_trace(path, why); },
                                       path + ".ops", done, error);
  PROMISE(expanded != !error.empty());
  PROMISE(!expanded || done.peak_live_bytes == source->summary()->peak_live_bytes);
  for (std::uint64_t schedule = 0; expanded && schedule < 2; ++schedule) {
    replay::ReplayModel played(path + ".ops", schedule);
    const std::string wrong = played.run();
    if (!wrong.empty()) {
      fuzz::broken(wrong.c_str(), __FILE__, __LINE__);
    }
    PROMISE(played.calls == done.events);
  }
  model::FitOptions options;
  options.windows = 1 + size % 40;
  options.bytes = 4000 + size * 4;
  model::Model model;
  trace::Loss loss;
  if (size % 8 == 0 &&
      model::fit([&] { return trace::open_trace(path, error); }, options, model, loss, error)) {
    PROMISE(model.allocations == source->summary()->allocations);
  }
  (void)::unlink(path.c_str());
  (void)::unlink((path + ".ops").c_str());
  return 0;
}
