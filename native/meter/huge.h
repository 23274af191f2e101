// Decides when the huge pages of the process tree are counted, and keeps their peak and means.
//
// The source is AnonHugePages of /proc/PID/smaps_rollup. The kernel walks the page tables of each
// process for it: about 7 ms per GiB of 4 KiB pages, and much less for huge pages. So readings have
// a budget, counted in CPU time of the meter:
//
//   regularly               200 times its own cost after each reading: 0.5% of the wall time
//   before a process exits  if all readings together then cost at most 1%. Only back ends that see
//                           calls get there
//
// The budget allows half a millisecond in addition. Readings that were made for proportional memory
// (pss.h) count too, and cost nothing more.
//
// Between two readings the figures are a straight line, from 0 at the start. After the last reading
// they stay as they are.
//
// The sampler is pure arithmetic: callers pass every figure and every time. Only read_thp_events
// and obey_huge_pages_variable make system calls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "procfs.h"

namespace heapwright::meter {

class HugePageSampler {
 public:
  void start(double time) { start_ = last_ = time; }
  // Returns whether to read now.
  //
  // time     seconds
  // rss      resident memory of the tree in bytes
  // exiting  a process of the tree is about to exit
  [[nodiscard]] bool due(double time, std::uint64_t rss, bool exiting) const;
  // A reading of its own took `cost` seconds of CPU, whether it succeeded or not.
  void spend(double time, double cost, std::uint64_t rss);
  // Takes in a sum over all live processes.
  void add(double time, const Rollup& sum);

  // The number of readings. Without one, there is no peak, no mean and no share.
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  [[nodiscard]] std::uint64_t peak() const { return peak_; }
  [[nodiscard]] double mean(double end) const;
  // The share of anonymous memory that is in huge pages, both averaged over time; nullopt without
  // anonymous memory.
  [[nodiscard]] std::optional<double> share(double end) const;
  // Seconds of CPU time that readings of its own took.
  [[nodiscard]] double spent() const { return spent_; }

 private:
  double start_ = 0;
  double next_ = 0;   // when a regular reading is due
  double cost_ = 0;   // of the last reading, in seconds
  double spent_ = 0;  // by all readings
  std::uint64_t attempts_ = 0;
  std::uint64_t attempt_rss_ = 0;
  std::uint64_t samples_ = 0;
  double last_ = 0;  // the time of the last sum
  Rollup sum_;
  double huge_area_ = 0;  // byte seconds
  double anonymous_area_ = 0;
  std::uint64_t peak_ = 0;
};

// How often the kernel made a huge page since the machine started, for all processes.
struct ThpEvents {
  std::uint64_t faults = 0;     // at a page fault
  std::uint64_t collapses = 0;  // of small pages: by khugepaged or MADV_COLLAPSE
};

// Reads the text of /proc/vmstat; nullopt if the kernel does not count them.
std::optional<ThpEvents> parse_thp_events(const std::string& vmstat);
std::optional<ThpEvents> read_thp_events();

// Forbids transparent huge pages for this process and all its descendants if the environment asks
// for that: HEAPWRIGHT_HUGE_PAGES=never. Returns false with errno set if the kernel refuses.
bool obey_huge_pages_variable();

}  // namespace heapwright::meter
