// Opens a trace in either of its forms, the packed file or the recorder's raw file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trace/event.h"

namespace heapwright::trace {

// Opens the trace at `path`. Returns nullptr, with one line in `error`, if the file is neither form
// or cannot be read.
std::unique_ptr<EventSource> open_trace(const std::string& path, std::string& error);

// The seed with which a sample is expanded unless the user gives one.
inline constexpr std::uint64_t kSeed = 0;

// Opens the trace at `path` as a complete one: a sample is expanded, with `seed` as the seed
// (model/sample_expander.h). `rate`, if any, gets the rate of the sample, 0 for a complete trace.
// Returns nullptr, with one line in `error`, if it cannot be read.
std::unique_ptr<EventSource> open_complete(const std::string& path, std::uint64_t seed, std::string& error,
                                           std::uint64_t* rate = nullptr);

}  // namespace heapwright::trace
