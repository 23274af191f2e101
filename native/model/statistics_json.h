// Statistics as the JSON object of `heapwright info --json` (less its schema_version).
#pragma once

#include <string>

#include "statistics.h"

namespace heapwright::model {

// Sizes are bytes, times seconds. `file_bytes`: what the trace takes on disk, for bytes an event.
std::string to_json(Statistics& statistics, const trace::Header& header, const trace::Loss& loss,
                    std::uint64_t file_bytes);

}  // namespace heapwright::model
