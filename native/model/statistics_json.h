// Writes statistics of a trace as the JSON object of `heapwright info --json`, except its
// schema_version.
#pragma once

#include "statistics.h"
#include "trace/json.h"

namespace heapwright::model {

// Sizes are in bytes, times in seconds.
//   statistics  counted over all events of the trace
//   header      where the trace comes from
//   loss        what of the trace could not be read
//   file_bytes  size of the trace on disk
trace::Json to_json(Statistics& statistics, const trace::Header& header, const trace::Loss& loss,
                    std::uint64_t file_bytes);

}  // namespace heapwright::model
