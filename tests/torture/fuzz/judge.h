// Checks the promises of every reader on its events (trace/event.h). Objects are numbered in order
// of allocation and are alive when they are used. Threads are numbered in order of appearance.
// Times never decrease within a thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "input.h"
#include "trace/event.h"

namespace heapwright::fuzz {

class Judge {
 public:
  // whole      the events start at the first one of the trace, so that the judge sees every allocation
  // numbered   threads have their numbers in order of appearance; in a sample they keep those of the program
  explicit Judge(bool whole = true, bool numbered = true) : whole_(whole), numbered_(whole && numbered) {}

  void see(const trace::Event& event) {
    PROMISE(event.kind >= trace::Kind::kMalloc && event.kind <= trace::kLastKind);
    if (event.thread >= times_.size()) {
      PROMISE(!numbered_ || event.thread == times_.size());
      times_.resize(std::size_t{event.thread} + 1);
    }
    PROMISE(event.time >= times_[event.thread]);
    times_[event.thread] = event.time;
    if (is_allocation(event.kind)) {
      PROMISE(!whole_ || event.object == alive_.size());
      alive_.push_back(true);
    } else if (whole_ && refers(event.kind)) {
      PROMISE(event.object < alive_.size() && alive_[event.object]);
      alive_[event.object] = !is_free(event.kind);
    }
    ++events_;
  }
  std::uint64_t events() const { return events_; }

 private:
  static bool refers(trace::Kind kind) {
    return is_free(kind) || kind == trace::Kind::kRealloc || kind == trace::Kind::kUsableSize ||
           kind == trace::Kind::kTouched;
  }
  bool whole_;
  bool numbered_;
  std::vector<std::uint64_t> times_;
  std::vector<bool> alive_;
  std::uint64_t events_ = 0;
};

// Reads and judges all events of a source, up to `most`. `numbered`: as in Judge.
inline std::vector<trace::Event> read_all(trace::EventSource& source, std::size_t most = 1U << 20,
                                          bool numbered = true) {
  Judge judge(true, numbered);
  std::vector<trace::Event> events;
  for (trace::Event event; events.size() < most && source.next(event);) {
    judge.see(event);
    events.push_back(event);
  }
  const trace::Loss loss = source.loss();
  PROMISE(loss.why.size() < 1U << 20);
  return events;
}

}  // namespace heapwright::fuzz
