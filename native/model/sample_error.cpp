#include "sample_error.h"

#include <algorithm>
#include <cmath>

#include "trace/live_table.h"
#include "trace/sample.h"

namespace heapwright::model {

using trace::Event;

namespace {

struct Live {
  std::uint64_t size = 0;
  std::uint64_t largest = 0;
  double weight = 1;
};

double bytes_of(const Live& live) { return live.weight * static_cast<double>(live.size); }

double variance_of(const Live& live) {
  const auto size = static_cast<double>(live.size);
  return live.weight * (live.weight - 1) * size * size;
}

}  // namespace

std::optional<SampleError> sample_error(trace::EventSource& sample) {
  SampleError found;
  found.rate = sample.header().sample;
  if (found.rate == 0) {
    return std::nullopt;
  }
  const bool growth = sample.header().sample_growth;
  trace::LiveTable<Live> table;
  double bytes = 0;
  double variance = 0;
  double count_variance = 0;
  double allocated_variance = 0;
  double peak_variance = 0;
  for (Event event; sample.next(event);) {
    if (is_allocation(event.kind)) {
      const Live live{event.size, event.size, 1 / trace::chance(event.size, found.rate)};
      table.insert(event.object, live);
      ++found.objects;
      found.allocations += live.weight;
      found.allocated_bytes += bytes_of(live);
      count_variance += live.weight * (live.weight - 1);
      allocated_variance += variance_of(live);
      bytes += bytes_of(live);
      variance += variance_of(live);
    } else if (Live* const live = uses_object(event.kind) ? table.find(event.object) : nullptr) {
      if (event.kind == trace::Kind::kRealloc || is_free(event.kind)) {
        bytes -= bytes_of(*live);
        variance -= variance_of(*live);
      }
      if (is_free(event.kind)) {
        table.erase(event.object);
      } else if (event.kind == trace::Kind::kRealloc) {
        live->size = event.size;
        live->largest = std::max(live->largest, event.size);
        live->weight = growth ? 1 / trace::chance(live->largest, found.rate) : live->weight;
        bytes += bytes_of(*live);
        variance += variance_of(*live);
      }
    }
    if (bytes > found.peak_live) {
      found.peak_live = bytes;
      peak_variance = variance;
    }
  }
  found.allocations_error = std::sqrt(count_variance);
  found.allocated_error = std::sqrt(allocated_variance);
  found.peak_live_error = std::sqrt(std::max(0.0, peak_variance));
  return found;
}

trace::Json to_json(const SampleError& error) {
  return {{"rate", error.rate},
          {"objects", error.objects},
          {"allocations", std::round(error.allocations)},
          {"allocations_error", std::round(error.allocations_error)},
          {"allocated_bytes", std::round(error.allocated_bytes)},
          {"allocated_error", std::round(error.allocated_error)},
          {"peak_live_bytes", std::round(error.peak_live)},
          {"peak_live_error", std::round(error.peak_live_error)}};
}

}  // namespace heapwright::model
