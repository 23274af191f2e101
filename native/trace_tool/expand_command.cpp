// The sub-command of heapwright-trace that prepares a trace for replay.
#include <cstdio>

#include "command.h"
#include "open.h"
#include "replay/expand.h"
#include "trace/json.h"

namespace heapwright::trace {

// expand TRACE OPS: writes the operations for the replayer, and prints their counts as JSON.
int expand_command(Words words) {
  std::string error;
  replay::Expanded done;
  const auto open = [&words](std::string& why) { return open_trace(words[0], why); };
  if (!replay::expand(open, words[1], done, error)) {
    return fail(error);
  }
  const Json json{{"events", done.events},
                  {"threads", done.threads},
                  {"lanes", done.lanes},
                  {"epochs", done.epochs},
                  {"own_slots", done.own_slots},
                  {"shared_slots", done.shared_slots},
                  {"dropped", done.dropped},
                  {"peak_live_bytes", done.peak_live_bytes},
                  {"recorded_s", static_cast<double>(done.duration) / 1e9},
                  {"executable", done.executable},
                  {"libraries", done.libraries},
                  {"lost_bytes", done.loss.bytes},
                  {"lost_events", done.loss.events},
                  {"cut_short", done.loss.cut_short}};
  (void)std::printf("%s\n", to_line(json).c_str());
  if (!done.loss.why.empty()) {
    (void)std::fprintf(stderr, "heapwright-trace: %s: %s\n", words[0], done.loss.why.c_str());
  }
  return 0;
}

}  // namespace heapwright::trace
