// Packing: any trace into the packed form.
#pragma once

#include <string>

#include "event.h"
#include "packed.h"

namespace heapwright::trace {

struct Packed {
  Summary summary;
  Loss loss;
};

// Copies a stream into a packed file. False with one line in `error`; then there is no file.
bool pack(EventSource& source, const std::string& path, Packed& done, std::string& error,
          std::uint64_t tick = kTick);

}  // namespace heapwright::trace
