// What a model is laid out by, found in the first pass over a trace: the windows, the size classes, and from which size on
// stays are kept one by one.
#pragma once

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "fit.h"
#include "model.h"
#include "statistics.h"

namespace heapwright::model {

// Ticks [begin, end). Without ticks: what is freed before tick `begin`, and nothing else.
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
  // The classes with their sizes, by mean size; nothing else is filled in.
  const std::vector<SizeClass>& classes() const { return classes_; }
  std::uint32_t class_of(std::uint64_t size) const;

 private:
  void cut(const FitOptions& options);
  void divide(const FitOptions& options);
  void note_burst(std::uint64_t tick, std::uint64_t live_before);

  Statistics statistics_;
  std::vector<std::pair<std::uint64_t, std::uint64_t>>
      bursts_;                           // bytes freed, tick they were freed before; a heap, least first
  std::set<std::uint64_t> thread_ends_;  // before which tick
  std::vector<TickRange> ranges_;
  std::uint64_t script_from_ = 0;
  std::vector<SizeClass> classes_;
  std::unordered_map<std::uint64_t, std::uint32_t> exact_;
  std::vector<std::int32_t> binned_;  // class of each quarter of a doubling; -1 for none
};

// Of many sizes of a class a dozen stay: neighbours become one at their mean, those first that are rare and near to each other.
void shorten(std::vector<std::pair<std::uint64_t, std::uint64_t>>& sizes);

double mean_size(const SizeClass& c);

}  // namespace heapwright::model
