// Decides when the proportional set size (PSS) of the process tree is read, and keeps its peak and
// mean.
//
// PSS divides every shared page among the processes that map it, so a sum over processes counts it
// once. The kernel computes it by walking the page tables of each process (about 7 ms per GiB), so
// readings have a budget, counted in CPU time of the meter:
//
//   regularly                  100 times its own cost after each reading: 1 % of the wall time
//   at a likely new peak       if all readings together then cost at most 1.5 % of the wall time
//   before such a peak ends    if they then cost at most 2 %: at the entry of exec or of a call
//                              that returns memory. Only back ends that see calls can do this
//   before a process exits     the same, whether a peak is likely or not, because its copies of
//                              shared pages do not show in the RSS
//
// The budget allows 1 ms in addition. A sampler may have a multiple of the whole budget; then its
// first reading also comes sooner. A peak is likely if the tree's summed RSS is 2 % above its value
// at every reading so far, or if RSS less the surplus of the last reading is 2 % above the PSS
// peak. The surplus is RSS less PSS: the amount by which a sum of RSS exceeds the memory.
//
// The mean uses RSS, because the ledger has many more readings of it. Between two readings, PSS is
// taken as RSS less the surplus, and the surplus as a straight line. If a process started or ended
// meanwhile, PSS itself is taken as the straight line.
//
// It is pure arithmetic: callers pass every figure and every time, so tests use synthetic clocks.
#pragma once

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
  // Returns whether to read now.
  [[nodiscard]] bool due(double time, const Ledger& ledger, Moment moment) const;
  // A reading took `cost` seconds of CPU. `sum`: over all live processes, or nullopt if one could
  // not be read.
  void read(double time, double cost, const Ledger& ledger, const std::optional<Rollup>& sum);

  // The number of complete readings. Without one, there is no peak and no mean.
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  [[nodiscard]] std::uint64_t peak() const { return peak_; }
  [[nodiscard]] double mean(double end, const Ledger& ledger) const;
  // Seconds of CPU time that all readings took.
  [[nodiscard]] double spent() const { return spent_; }

 private:
  [[nodiscard]] double surplus() const {
    return static_cast<double>(sum_.rss) - static_cast<double>(sum_.pss);
  }

  double scale_;
  double start_ = 0;
  double next_ = 0;   // when a regular reading is due
  double cost_ = 0;   // of the last reading, in seconds
  double spent_ = 0;  // by all readings
  std::uint64_t attempts_ = 0;
  std::uint64_t attempt_rss_ = 0;  // the ledger's sum at the last reading
  std::uint64_t high_rss_ = 0;     // its largest at any reading
  // Of complete readings only.
  std::uint64_t samples_ = 0;
  double last_ = 0;  // the time of the last one
  Rollup sum_;       // its sum
  double rss_area_ = 0;
  double pss_area_ = 0;
  std::uint64_t peak_ = 0;
};

}  // namespace heapwright::meter
