// Draws a sample of objects from a trace: each chosen object with all its events, and the number of
// ticks of each thread. docs/trace-format.md describes samples; sample_expander.h makes a complete
// trace of one.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "event.h"
#include "live_table.h"
#include "pending_events.h"
#include "sample_choice/grouped_numbers.h"

namespace heapwright::trace {

// The chance that a sample of rate `rate` has an object that is born with `size` bytes. Each KiB of
// the object is one more draw, so large objects are in nearly every sample.
double chance(std::uint64_t size, std::uint64_t rate);
// The draws of an object beyond the first.
std::uint64_t further_draws(std::uint64_t size);
// The chance that at least one of so many draws succeeds.
double chance_of_draws(double draws, std::uint64_t rate);

// A sample of another trace. A sample of a sample is as if it were drawn from the complete trace.
//
// Each object has a number between 0 and 1, and is chosen if its chance is above this. The numbers
// of a thread's objects of similar sizes are those of a GroupedNumbers. So a sample has as many
// objects of each size as it should, up to one or two, as those of the recorder have
// (recorder/sampling.h).
class SampleSource : public EventSource {
 public:
  // source  the trace; a complete one, or a sample of at most the same rate
  // rate    1 in so many small objects is chosen; at least 1
  // seed    of the choice
  SampleSource(std::unique_ptr<EventSource> source, std::uint64_t rate, std::uint64_t seed);

  const Header& header() const override { return header_; }
  bool next(Event& event) override;
  Loss loss() const override { return source_->loss(); }

 private:
  struct Thread {
    std::uint64_t ticks = 0;  // that no kTicks has counted
    std::uint64_t last = 0;   // nanoseconds, of its last event
  };

  void take(Event event);
  void put_ticks(std::uint32_t thread, std::uint64_t time);
  bool use(Event& event);
  [[nodiscard]] double chance_here(std::uint64_t size) const;
  double uniform() {
    return static_cast<double>(bits_() >> 11) / static_cast<double>(std::uint64_t{1} << 53);
  }

  std::unique_ptr<EventSource> source_;
  Header header_;
  std::uint64_t from_rate_;  // of the source; 0 if it is complete
  std::mt19937_64 bits_;
  struct Object {
    double drawn = 0;          // chosen once the chance is higher
    std::uint64_t number = 0;  // here
    bool chosen = false;
  };
  LiveTable<Object> live_;
  sample_choice::GroupedNumbers numbers_;
  std::uint64_t objects_ = 0;
  std::vector<Thread> threads_;
  PendingEvents pending_;
  bool ended_ = false;
};

}  // namespace heapwright::trace
