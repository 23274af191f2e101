// Decides when the proportional set size (PSS) of the process tree is read, and keeps its peak and
// mean.
//
// PSS divides every shared page among the processes that map it, so a sum over processes counts it
// once. The kernel computes it by walking the page tables of each process (about 7 ms per GiB), so
// readings have a budget, counted in CPU time of the meter:
//
//   regularly                  100 times its own cost after each reading: 1% of the wall time
//   at a likely new peak       if all readings together then cost at most 1.5% of the wall time
//   before such a peak ends    if they then cost at most 2%: at the entry of exec or of a
//                              call that returns memory. Only back ends that see calls can do this
//   before a process exits     the same, whether a peak is likely or not, because its copies of
//                              shared pages do not show in the RSS
//
// The budget allows 1 ms in addition. A run of a few tenths of a second has often spent this before
// it reaches its peak. So a reserve of 5 ms in all pays for readings when PSS may be an eighth
// above the peak known so far; not at a tick that finds a new process, because more may follow.
//
// A sampler may have a multiple of the whole budget; then its first reading also comes sooner. A
// peak is likely if the tree's summed RSS is 2% above its value at every reading so far, or if RSS
// less the surplus of the last reading is 2% above the PSS peak. The surplus is RSS less PSS: the
// amount by which a sum of RSS exceeds the memory. RSS less the surplus bounds PSS from above while
// the processes stay the same, except that copies of shared pages lower the surplus.
//
// The ledger has many more readings of RSS. While the processes stay the same, a new anonymous page
// belongs to one of them alone, so PSS is at least its last reading plus the growth of anonymous
// memory since then. The peak is the largest reading or such bound. If the bound from above is more
// than an eighth higher, the readings missed the peak, and it is unknown.
//
// The mean uses RSS, too. Between two readings, PSS is taken as RSS less the surplus, and the
// surplus as a straight line. If a process started or ended meanwhile, PSS itself is taken as the
// straight line.
//
// It is pure arithmetic: callers pass every figure and every time, so tests use synthetic clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "ledger.h"
#include "procfs.h"

namespace heapwright::meter {

class PssSampler {
 public:
  // `scale`: how many times the budget above the readings may cost.
  explicit PssSampler(double scale = 1) : scale_(scale) {}

  enum class Moment : std::uint8_t {
    kOrdinary,   // a tick, or a call that returns no memory
    kReleasing,  // a call that may return memory
    kExit,       // of a process
  };

  void start(double time) { start_ = last_ = time; }
  // The ledger has taken in readings of RSS.
  void observe(const Ledger& ledger);
  // Returns whether to read now.
  [[nodiscard]] bool due(double time, const Ledger& ledger, Moment moment);
  // A reading took `cost` seconds of CPU. `sum`: over all live processes, or nullopt if one could
  // not be read.
  void read(double time, double cost, const Ledger& ledger, const std::optional<Rollup>& sum);

  // The number of complete readings. Without one, there is no peak and no mean.
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  // The largest reading.
  [[nodiscard]] std::uint64_t peak() const { return peak_; }
  // The peak, between the readings too; nullopt if they missed it. `max_rss`: the peak of RSS if it
  // is known from elsewhere, as that of a single process is; else 0.
  [[nodiscard]] std::optional<std::uint64_t> peak_of_run(std::uint64_t max_rss) const;
  [[nodiscard]] double mean(double end, const Ledger& ledger) const;
  // Seconds of CPU time that all readings took.
  [[nodiscard]] double spent() const { return spent_; }

 private:
  [[nodiscard]] double surplus() const { return surplus_of(sum_); }
  static double surplus_of(const Rollup& sum) {
    return static_cast<double>(sum.rss) - static_cast<double>(sum.pss);
  }

  double scale_;
  double start_ = 0;
  double next_ = 0;       // when a regular reading is due
  double cost_ = 0;       // of the last reading, in seconds
  double spent_ = 0;      // by all readings
  double borrowed_ = 0;   // of it, from the reserve
  bool borrows_ = false;  // whether the reserve pays for the reading that is due
  std::uint64_t attempts_ = 0;
  std::uint64_t attempt_rss_ = 0;  // the ledger's sum at the last reading
  std::uint64_t high_rss_ = 0;     // its largest at any reading
  std::uint64_t unread_rss_ = 0;   // its largest since the last complete reading
  // Of complete readings only.
  std::uint64_t samples_ = 0;
  double last_ = 0;  // the time of the last one
  Rollup sum_;       // its sum
  double rss_area_ = 0;
  double pss_area_ = 0;
  std::uint64_t anonymous_ = 0;  // at the last one
  std::size_t live_ = 0;         // processes at the last one
  std::uint64_t peak_ = 0;
  // The highest PSS between readings: at least, and at most.
  std::uint64_t followed_ = 0;
  double possible_ = 0;
};

}  // namespace heapwright::meter
