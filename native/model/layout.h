// Chooses the layout of a model in the first pass over a trace: its windows, its size classes, and
// the sizes of the script.
#pragma once

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "fit.h"
#include "model.h"
#include "statistics.h"

namespace heapwright::model {

// Ticks [begin, end) of a window. A range without ticks stands for the frees before tick `begin`.
struct TickRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class Layout {
 public:
  // Reads the whole trace.
  Layout(trace::EventSource& source, const FitOptions& options);

  std::uint64_t ticks() const { return statistics_.ticks; }
  Statistics& statistics() { return statistics_; }
  const std::vector<TickRange>& ranges() const { return ranges_; }
  std::uint64_t script_from() const { return script_from_; }
  // The classes in order of mean size. Only their sizes are filled in.
  const std::vector<SizeClass>& classes() const { return classes_; }
  std::uint32_t class_of(std::uint64_t size) const;

 private:
  void cut(const FitOptions& options);
  void divide(const FitOptions& options);
  void note_burst(std::uint64_t tick, std::uint64_t live_before);

  Statistics statistics_;
  // Bursts of frees: bytes, and the tick before which they were freed; a heap with the smallest
  // first.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> bursts_;
  std::set<std::uint64_t> thread_ends_;  // the ticks before which threads end
  std::vector<TickRange> ranges_;
  std::uint64_t script_from_ = 0;
  std::vector<SizeClass> classes_;
  std::unordered_map<std::uint64_t, std::uint32_t> exact_;
  std::vector<std::int32_t> binned_;  // class of each quarter of a doubling of sizes; -1 for none
};

// Shortens a list of (size, count) to a dozen entries: merges neighbours at their mean, first those
// that are rare and near each other.
void shorten(std::vector<std::pair<std::uint64_t, std::uint64_t>>& sizes);

// Bytes.
double mean_size(const SizeClass& c);

}  // namespace heapwright::model
