#include "open.h"

#include <utility>

#include "model/sample_expander.h"
#include "trace/packed.h"
#include "trace/raw/raw_reader.h"

namespace heapwright::trace {

std::unique_ptr<EventSource> open_trace(const std::string& path, std::string& error) {
  if (is_raw(path)) {
    return open_raw(path, error);
  }
  return open_packed(path, error);
}

std::unique_ptr<EventSource> open_complete(const std::string& path, std::uint64_t seed, std::string& error,
                                           std::uint64_t* rate) {
  auto source = open_trace(path, error);
  if (source && rate != nullptr) {
    *rate = source->header().sample;
  }
  if (!source || source->header().sample == 0) {
    return source;
  }
  return std::make_unique<model::SampleExpander>(std::move(source), seed);
}

}  // namespace heapwright::trace
