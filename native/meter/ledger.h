// Keeps the ledger of a process tree's memory: peaks, means over time, and memory returned to the
// kernel. It is pure arithmetic: callers pass every figure and every time. It makes no system
// calls, and tests feed it synthetic events.
//
// Rules
//   vm, heap   change only at mapping calls. A reading taken at a call's ENTRY is the state since
//              the process's previous reading. So both are step functions, and their peaks and
//              averages are exact for one thread.
//   rss        also grows by page faults between readings, and falls at calls. A rise counts as a
//              straight line. A fall counts as if it happened right after the previous reading,
//              which was taken at the entry of the call that caused it.
//   returned   the falls of rss while a releasing call is in progress: from the reading at its
//              entry to the same thread's next call. Ticks and other threads may read in between,
//              before or after the call takes effect.
//   quantiles  of rss over time count the time between two readings of the tree with the later
//              total.
//   totals     are sums over live processes of their latest reading. A process that shares its
//              memory with its parent (vfork, before exec) is not counted.
//
// Invariants: total_ is the sum of last over entries_; time never runs backwards.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "size_durations.h"

namespace heapwright::meter {

struct Memory {
  std::uint64_t vm = 0;
  std::uint64_t rss = 0;
  std::uint64_t anonymous = 0;  // of rss; the ledger keeps no peak of it
  std::uint64_t heap = 0;
  std::uint64_t huge = 0;  // of the tree, from readings of their own (Ledger::set_huge)
};

struct SeriesPoint {
  double time = 0;  // since the start
  Memory memory;
};

class Ledger {
 public:
  // Keeps at most `series` points of memory over time. When there are more, it merges pairs of
  // neighbours, so at least half as many remain.
  explicit Ledger(std::size_t series = 0) : series_limit_(series) {}

  void start(double time) { start_ = totalled_ = time; }
  // The process whose end is the end of the run.
  void set_root(pid_t root) { root_ = root; }
  // Takes in a reading of a process; the first one adds the process.
  void sample(pid_t process, double time, const Memory& memory);
  // The thread enters a call that may return memory: falls of rss count as returned from now on.
  void begin_release(pid_t process, pid_t thread);
  // The thread makes its next call, so the releasing call is over.
  void end_release(pid_t process, pid_t thread);
  void lazily_returned(std::uint64_t length) { returned_lazily_ += length; }
  // The process, or its program image, has ended. Its memory counts as last read until now.
  void process_ended(pid_t process, double time);
  // The tree has this much memory in huge pages from now on.
  void set_huge(std::uint64_t bytes);
  // Closes a point of the series: the largest totals since the last one.
  void tick(double time);

  [[nodiscard]] std::size_t live() const { return entries_.size(); }
  [[nodiscard]] std::size_t max_live() const { return max_live_; }
  // The most anonymous memory that one process had.
  [[nodiscard]] std::uint64_t max_anonymous() const { return max_anonymous_; }
  // When a process, or a program image, last came or went.
  [[nodiscard]] double changed() const { return changed_; }
  [[nodiscard]] const Memory& total() const { return total_; }
  [[nodiscard]] const Memory& peak() const { return peak_; }
  // The integral over time up to each process's last reading, in byte seconds.
  [[nodiscard]] double rss_area() const { return area_rss_; }
  [[nodiscard]] double mean_rss(double end) const { return mean(area_rss_, end); }
  [[nodiscard]] double mean_heap(double end) const { return mean(area_heap_, end); }
  // The total that was not exceeded in this share of the time; nullopt without any reading.
  [[nodiscard]] std::optional<std::uint64_t> rss_quantile(double share) const {
    return durations_.empty() ? std::nullopt : std::optional(durations_.quantile(share));
  }
  // The total at the end of the root; nullopt if it has not ended, or was never read.
  [[nodiscard]] std::optional<std::uint64_t> final_rss() const { return final_rss_; }
  [[nodiscard]] std::uint64_t returned() const { return returned_; }
  [[nodiscard]] std::uint64_t returned_lazily() const { return returned_lazily_; }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  [[nodiscard]] const std::vector<SeriesPoint>& series() const { return series_; }

 private:
  struct Entry {
    double time = 0;
    Memory last;
    std::set<pid_t> releasing;  // threads
  };

  [[nodiscard]] double mean(double area, double end) const {
    return end > start_ ? area / (end - start_) : 0;
  }
  void raise_peaks();
  void count_time(std::uint64_t rss, double time);

  double start_ = 0;
  std::map<pid_t, Entry> entries_;
  std::size_t max_live_ = 0;
  std::uint64_t max_anonymous_ = 0;
  double changed_ = 0;
  Memory total_;
  Memory peak_;
  Memory recent_;  // largest totals since the last tick
  double area_rss_ = 0;
  double area_heap_ = 0;
  SizeDurations durations_;
  double totalled_ = 0;  // until when durations_ counts
  pid_t root_ = 0;
  std::optional<std::uint64_t> final_rss_;
  std::uint64_t returned_ = 0;
  std::uint64_t returned_lazily_ = 0;
  std::uint64_t samples_ = 0;
  std::size_t series_limit_;
  std::vector<SeriesPoint> series_;
  std::uint64_t ticks_in_point_ = 1;  // doubles with each halving, so that points stay evenly spaced
  std::uint64_t ticks_in_last_ = 0;
};

}  // namespace heapwright::meter
