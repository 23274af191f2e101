// Reads the recorder's raw file of one process. Merges the records of all writers by their stamps
// into one stream of events, and turns addresses into object ids.
//
// Memory: one block for each writer (there are as many as there were threads at once), an index of
// 16 bytes a block, and a table of the live objects. It does not grow with the length of the trace.
// A file that is truncated or damaged is read as far as it is valid; loss() says how much is
// missing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trace/event.h"

namespace heapwright::trace {

// Facts that only a raw file holds.
struct RawFacts {
  // Bytes of the file that were used.
  std::uint64_t bytes = 0;
  // Events in an impossible order: an address that is allocated twice, or freed before its
  // allocation.
  std::uint64_t inverted = 0;
  // Events within the resolution of the clock that were put into the only possible order.
  std::uint64_t reordered = 0;
  // Frees and reallocs of memory that a forked process has from its parent.
  std::uint64_t inherited = 0;
  // Frees of addresses that were never allocated; Loss::events counts them too.
  std::uint64_t unknown_frees = 0;
};

class RawSource : public EventSource {
 public:
  virtual RawFacts facts() const = 0;
};

// Opens a raw file. Returns nullptr, with one line in `error`, if nothing of it can be used.
std::unique_ptr<RawSource> open_raw(const std::string& path, std::string& error);

// Returns whether the file begins like a raw file.
bool is_raw(const std::string& path);

}  // namespace heapwright::trace
