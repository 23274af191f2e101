// Translates the header of a raw file into the terms of a trace.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "raw_format/format.h"
#include "trace/event.h"

namespace heapwright::trace {

Header read_header(const raw::FileHeader& raw);

// Returns for each phase of the file its number in `names`, and appends the new names to `names`.
// Two phases of the file may have one name, because two threads may have named it for the first
// time at the same moment.
std::vector<std::uint64_t> read_phases(const raw::FileHeader& raw, std::vector<std::string>& names);

// Converts stamps of the recorder's clock to nanoseconds since the beginning of the recording.
class ClockConversion {
 public:
  explicit ClockConversion(const raw::FileHeader& raw);
  std::uint64_t to_ns(std::uint64_t stamp) const;
  // When the process ended that could not record it; 0 if unknown.
  std::uint64_t end_ns() const { return end_ns_; }

 private:
  std::uint64_t first_;
  std::uint64_t units_;
  std::uint64_t ns_;
  std::uint64_t end_ns_;
};

}  // namespace heapwright::trace
