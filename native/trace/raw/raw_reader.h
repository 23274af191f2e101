// Reads the recorder's raw file of one process. Merges the records of all writers by their stamps
// into one stream of events, and turns addresses into object ids.
//
// Memory: one raw block for each writer (there are as many as there were threads at once), a table
// of the live objects, and an index of 16 bytes for each raw block of 64 KiB. Only the index grows
// with the length of the trace; opening a sample also takes an entry for each thread
// (unseen_ticks.h). A file that is truncated or damaged is read as far as it is valid; loss() says
// how much is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trace/event.h"

namespace heapwright::trace {

// Opens a raw file. Returns nullptr, with one line in `error`, if nothing of it can be used.
std::unique_ptr<EventSource> open_raw(const std::string& path, std::string& error);

// Returns whether the file begins like a raw file.
bool is_raw(const std::string& path);

}  // namespace heapwright::trace
