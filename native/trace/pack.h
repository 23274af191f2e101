// Packs a trace of any form.
#pragma once

#include <cstdint>
#include <string>

#include "event.h"
#include "packed.h"

namespace heapwright::trace {

struct Packed {
  Summary summary;
  Loss loss;
  std::uint64_t ticks = 0;  // of a sample those of all objects, which it counts
};

// Copies a stream of events into a packed file.
//
// source  the stream
// path    the file
// done    gets the summary, the losses and the ticks
// error   gets one line if the file cannot be written
// tick    the resolution of times in nanoseconds
//
// Returns false if the file cannot be written; then there is no file.
bool pack(EventSource& source, const std::string& path, Packed& done, std::string& error,
          std::uint64_t tick = kTick);

}  // namespace heapwright::trace
