// The sub-command of heapwright-trace that makes traces ready for replay.
#include <cstdio>

#include "command.h"
#include "model/json.h"
#include "open.h"
#include "replay/expand.h"

namespace heapwright::trace {

// expand TRACE OPS: says on stdout, as JSON, what is in it.
int expand_command(Words words) {
  std::string error;
  replay::Expanded done;
  const auto open = [&words](std::string& why) { return open_trace(words[0], why); };
  if (!replay::expand(open, words[1], done, error)) {
    return fail(error);
  }
  model::Json json;
  json.open('{').field("events", done.events).field("threads", done.threads).field("lanes", done.lanes);
  json.field("epochs", done.epochs)
      .field("own_slots", done.own_slots)
      .field("shared_slots", done.shared_slots);
  json.field("dropped", done.dropped).field("peak_live_bytes", done.peak_live_bytes);
  json.field("recorded_s", static_cast<double>(done.duration) / 1e9).field("executable", done.executable);
  json.key("libraries").open('[');
  for (const std::string& library : done.libraries) {
    json.value(library);
  }
  json.close(']');
  json.field("lost_bytes", done.loss.bytes).field("lost_events", done.loss.events);
  json.field("cut_short", done.loss.cut_short).close('}');
  (void)std::printf("%s\n", json.text().c_str());
  if (!done.loss.why.empty()) {
    (void)std::fprintf(stderr, "heapwright-trace: %s: %s\n", words[0], done.loss.why.c_str());
  }
  return 0;
}

}  // namespace heapwright::trace
