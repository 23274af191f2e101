// What the header of a raw file says, in the terms of a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "raw_format/format.h"
#include "trace/event.h"

namespace heapwright::trace {

Header read_header(const raw::FileHeader& raw);

// For each phase of the file its number in `names`, which gets the names that are new. (A phase's number in the file is its place in
// the table; threads that named a new phase at once made two places for one name.)
std::vector<std::uint64_t> read_phases(const raw::FileHeader& raw, std::vector<std::string>& names);

// From the clock's units to nanoseconds since the beginning.
class ClockConversion {
 public:
  explicit ClockConversion(const raw::FileHeader& raw);
  std::uint64_t to_ns(std::uint64_t stamp) const;

 private:
  std::uint64_t first_;
  std::uint64_t units_;
  std::uint64_t ns_;
};

}  // namespace heapwright::trace
