// Opens a trace in either of its forms, the packed file or the recorder's raw file.
#pragma once

#include <memory>
#include <string>

#include "trace/event.h"

namespace heapwright::trace {

// Opens the trace at `path`. Returns nullptr, with one line in `error`, if the file is neither form
// or cannot be read.
std::unique_ptr<EventSource> open_trace(const std::string& path, std::string& error);

}  // namespace heapwright::trace
