#include "open.h"

#include "trace/packed.h"
#include "trace/raw/raw_reader.h"

namespace heapwright::trace {

std::unique_ptr<EventSource> open_trace(const std::string& path, std::string& error) {
  if (is_raw(path)) {
    return open_raw(path, error);
  }
  return open_packed(path, error);
}

}  // namespace heapwright::trace
