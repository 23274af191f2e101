// Reads what the recorder wrote: one file for each process, in blocks that one thread at a time filled. The blocks of all
// writers are merged by their stamps into one stream of events, and addresses become object ids.
//
// Memory: one block for each writer (as many as there were threads at once), an index of 16 bytes a block, and a table
// of the objects that are live, whatever the length of the trace.
// A file that is cut short or corrupt is read as far as it makes sense; loss() says what is missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trace/event.h"

namespace heapwright::trace {

// What only a raw file knows.
struct RawFacts {
  std::uint64_t bytes = 0;  // of the file that were used
  std::uint64_t inverted =
      0;  // events in an impossible order: an address made twice, or freed before it was made
  std::uint64_t reordered =
      0;  // events within the resolution of the clock that were put into their only possible order
  std::uint64_t inherited = 0;      // frees and reallocs of memory that a forked process had from its parent
  std::uint64_t unknown_frees = 0;  // frees of addresses that were never made; in Loss::events as well
};

class RawSource : public EventSource {
 public:
  virtual RawFacts facts() const = 0;
};

// Opens a raw file; nullptr with one line in `error` where nothing of it can be used.
std::unique_ptr<RawSource> open_raw(const std::string& path, std::string& error);

// Whether the file begins like a raw file.
bool is_raw(const std::string& path);

}  // namespace heapwright::trace
