// Checks the promises of every reader on its events (trace/event.h). Objects are numbered in order
// of allocation and are alive when they are used. Threads are numbered in the order in which they
// are created or first appear. Times never decrease within a thread.
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
  // numbered   threads are numbered without gaps; in a sample they keep the numbers of the program
  explicit Judge(bool whole = true, bool numbered = true) : whole_(whole), numbered_(whole && numbered) {}

  void see(const trace::Event& event) {
    PROMISE(event.kind >= trace::Kind::kMalloc && event.kind <= trace::kLastKind);
    if (event.thread >= times_.size()) {
      PROMISE(!numbered_ || event.thread == times_.size());
      times_.resize(std::size_t{event.thread} + 1);
    }
    PROMISE(event.time >= times_[event.thread]);
    times_[event.thread] = event.time;
    if (numbered_ && event.kind == trace::Kind::kSpawn) {
      PROMISE(event.value <= times_.size());
      times_.resize(std::max<std::size_t>(times_.size(), event.value + 1));
    }
    if (is_allocation(event.kind)) {
      PROMISE(!whole_ || event.object == alive_.size());
      alive_.push_back(true);
    } else if (whole_ && uses_object(event.kind)) {
      PROMISE(event.object < alive_.size() && alive_[event.object]);
      alive_[event.object] = !is_free(event.kind);
    }
    ++events_;
  }
  std::uint64_t events() const { return events_; }

 private:
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

// Kinds of events in all inputs so far, as bits. A harness that replays a corpus without some kinds
// does not test them: the corpus is of an older form of traces.
class SeenKinds {
 public:
  void add(trace::Kind kind) { seen_ |= 1U << static_cast<unsigned>(kind); }
  // Prints a line and returns false if a kind is missing.
  [[nodiscard]] bool is_complete() const {
    constexpr auto kLast = static_cast<unsigned>(trace::kLastKind);
    for (unsigned kind = 1; kind <= kLast; ++kind) {
      if ((seen_ >> kind & 1U) == 0) {
        (void)std::fprintf(stderr, "no input has an event of kind %u: make new ones (tools/fuzz.py)\n", kind);
        return false;
      }
    }
    return true;
  }

 private:
  static_assert(static_cast<unsigned>(trace::kLastKind) < 32);
  std::uint32_t seen_ = 0;
};

}  // namespace heapwright::fuzz
