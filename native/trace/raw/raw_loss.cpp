#include "raw_loss.h"

#include <cstdint>
#include <cstring>
#include <string>

namespace heapwright::trace {

using raw::Ending;

namespace {

std::string counted(std::uint64_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace

Loss describe_loss(const raw::FileHeader& raw, const RawLoss& lost) {
  Loss loss;
  loss.failed_calls = raw.failed.load();
  loss.events = lost.events;
  loss.bytes = lost.bytes;
  const Ending ending = raw.ending.load();
  loss.cut_short =
      ending == Ending::kRunning || ending == Ending::kStopped || lost.truncated || lost.blocks != 0;
  if (ending == Ending::kStopped) {
    loss.why = std::string("recording stopped early: ") + std::strerror(static_cast<int>(raw.error.load()));
  } else if (lost.truncated || lost.blocks != 0 || loss.bytes != 0) {
    loss.why = "the file is damaged or cut: it lacks " + counted(lost.blocks, "block") + ", and " +
               counted(loss.bytes, "byte") + " could not be read";
  } else if (loss.events != 0) {
    loss.why = "the reader left out " + counted(loss.events, "impossible event") +
               ", such as a free of an unknown address";
  } else if (raw.windowed != 0 && raw.window_begin_ns.load() == 0) {
    loss.why = "the window did not begin before the process ended";
  } else if (ending == Ending::kRunning) {
    loss.why = raw.end_ns.load() != 0 ? "the process was killed, ended without exit(), or still ran"
                                      : "the process was killed or still ran; when it ended is unknown";
  } else if (lost.inherited != 0) {
    loss.why = "the reader left out " + counted(lost.inherited, "call") +
               " of free or realloc for memory from before fork()";
  }
  return loss;
}

}  // namespace heapwright::trace
