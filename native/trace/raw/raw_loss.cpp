#include "raw_loss.h"

#include <cstring>
#include <string>

namespace heapwright::trace {

using raw::Ending;

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
    loss.why = "the file is damaged or cut: " + std::to_string(lost.blocks) + " blocks are missing and " +
               std::to_string(loss.bytes) + " bytes could not be read";
  } else if (loss.events != 0) {
    loss.why = std::to_string(loss.events) + " events were impossible, such as a free of an unknown address";
  } else if (raw.windowed != 0 && raw.window_begin_ns.load() == 0) {
    loss.why = "the window did not begin before the process ended";
  } else if (ending == Ending::kRunning) {
    loss.why = "the process was killed, ended without exit(), or still ran";
  } else if (lost.inherited != 0) {
    loss.why =
        std::to_string(lost.inherited) + " frees and reallocations of memory from before fork() are left out";
  }
  return loss;
}

}  // namespace heapwright::trace
