// Implements the sub-command of heapwright-trace that prepares a trace for replay.
#include "command.h"
#include "open.h"
#include "replay/expand.h"
#include "trace/json.h"

namespace heapwright::trace {

// expand TRACE OPS: writes the operations for the replayer, and prints their counts as JSON.
int expand_command(Words words) {
  std::string error;
  replay::Expanded done;
  std::uint64_t rate = 0;
  const auto open = [&](std::string& why) { return open_complete(words[0], kSeed, why, &rate); };
  if (!replay::expand(open, words[1], done, error)) {
    return fail(error);
  }
  return print_with_loss({{"events", done.events},
                          {"threads", done.threads},
                          {"lanes", done.lanes},
                          {"epochs", done.epochs},
                          {"own_slots", done.own_slots},
                          {"shared_slots", done.shared_slots},
                          {"dropped", done.dropped},
                          {"peak_live_bytes", done.peak_live_bytes},
                          {"recorded_s", static_cast<double>(done.duration) / 1e9},
                          {"executable", done.executable},
                          {"allocator", done.allocator},
                          {"libraries", done.libraries},
                          {"sample", rate}},
                         words[0], done.loss);
}

}  // namespace heapwright::trace
