#include "sample_error.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "sample_choice/grouped_numbers.h"
#include "split_peak.h"
#include "statistics.h"
#include "trace/live_table.h"
#include "trace/sample.h"

namespace heapwright::model {

using trace::Event;

namespace {

struct Live {
  std::uint64_t size = 0;
  std::uint64_t largest = 0;
  double weight = 1;
  double half_chance = 1;
  HalfDraws halves{};
};

double bytes_of(const Live& live) { return live.weight * static_cast<double>(live.size); }

double variance_of(const Live& live) {
  const auto size = static_cast<double>(live.size);
  return live.weight * (live.weight - 1) * size * size;
}

// The maxima of the sums over live objects.
class Peaks {
 public:
  // sign  1 to add an object, -1 to take it off
  void change(const Live& live, double sign) {
    bytes_.add(sign * static_cast<double>(live.size), live.half_chance, live.halves);
    rounded_.add(sign * static_cast<double>(rounded(live.size)), live.half_chance, live.halves);
    objects_.add(sign, live.half_chance, live.halves);
  }
  void note() {
    bytes_.note();
    rounded_.note();
    objects_.note();
  }
  void finish(SampleError& found) const {
    found.peak_live = bytes_.estimate();
    found.peak_rounded = std::max(rounded_.estimate(), found.peak_live);
    found.peak_objects = objects_.estimate();
  }

 private:
  SplitPeak bytes_;
  SplitPeak rounded_;
  SplitPeak objects_;
};

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

}  // namespace

std::optional<SampleError> sample_error(trace::EventSource& sample) {
  SampleError found;
  found.rate = sample.header().sample;
  if (found.rate == 0) {
    return std::nullopt;
  }
  const bool growth = sample.header().sample_growth;
  trace::LiveTable<Live> table;
  Peaks peaks;
  // NOLINTNEXTLINE(bugprone-random-generator-seed,cert-msc*): the same for each reading of the file
  std::mt19937_64 bits;
  sample_choice::GroupedNumbers turns;
  double bytes = 0;
  double most_bytes = 0;
  double variance = 0;
  double count_variance = 0;
  double allocated_variance = 0;
  double peak_variance = 0;
  for (Event event; sample.next(event);) {
    if (is_allocation(event.kind)) {
      const double chance = trace::chance(event.size, found.rate);
      const double half = half_chance(chance);
      const double turn = turns.next(event.thread, event.size, bits);
      const Live live{event.size, event.size, 1 / chance, half, draw_halves(half, turn, bits)};
      peaks.change(live, 1);
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
        peaks.change(*live, -1);
      }
      if (is_free(event.kind)) {
        table.erase(event.object);
      } else if (event.kind == trace::Kind::kRealloc) {
        live->size = event.size;
        live->largest = std::max(live->largest, event.size);
        if (growth) {
          const double chance = trace::chance(live->largest, found.rate);
          live->weight = 1 / chance;
          live->half_chance = half_chance(chance);
        }
        peaks.change(*live, 1);
        bytes += bytes_of(*live);
        variance += variance_of(*live);
      }
    }
    peaks.note();
    if (bytes > most_bytes) {
      most_bytes = bytes;
      peak_variance = variance;
    }
  }
  peaks.finish(found);
  found.allocations_error = std::sqrt(count_variance);
  found.allocated_error = std::sqrt(allocated_variance);
  found.peak_live_error = std::sqrt(std::max(0.0, peak_variance));
  return found;
}

void put_estimates(trace::Json& statistics, SampleError error) {
  const auto whole = [](double value) { return static_cast<std::uint64_t>(std::llround(value)); };
  trace::Json& bound = statistics["lower_bound"];
  // An average over time is more precise, and no maximum is below it.
  error.peak_live = std::max(error.peak_live, statistics["mean_live_bytes"].get<double>());
  error.peak_rounded = std::max(error.peak_rounded, bound["mean_bytes"].get<double>());
  const std::uint64_t page = std::max<std::uint64_t>(1, bound["page_size"].get<std::uint64_t>());
  statistics["sample"] = to_json(error);
  statistics["bytes_per_event"] = nullptr;  // the file does not hold the events that are counted
  statistics["peak_live_bytes"] = whole(error.peak_live);
  statistics["peak_live_objects"] = whole(error.peak_objects);
  bound["peak_bytes"] = whole(error.peak_rounded);
  bound["peak_page_bytes"] = (whole(error.peak_rounded) + page - 1) / page * page;
}

}  // namespace heapwright::model
