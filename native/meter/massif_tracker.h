// Feeds Massif (massif.h) with the mapping calls of one process, as a tracer that stops at entry
// and exit sees them.
//
// This class translates the calls of each architecture and reads the mappings of a fresh program.
// The accounting in massif.h stays free of system calls, so that it can be tested by itself.
//
// Only the root process is followed, as Valgrind does by default; its children's calls never come
// here. Valgrind does not follow an exec either, and Massif then writes nothing at all; here each
// image is counted from its own start and the peak is the largest, so that `env X=1 program` gives
// the peak of the program.
//
// One call at a time: Valgrind runs one thread at a time, so its multiset has a definite order. Two
// calls that overlap in two threads could be seen to end in another order than the kernel executed
// them. So a thread that enters a mapping call while another is in one is held until the other
// returns. If a call does not return (a fault in it may be served by another thread, which itself
// maps), the held threads go on after some ticks.
//
// Invariants: calls_ has the threads between entry and exit; in_call_ is the one others wait for,
// or 0; held_ is empty while in_call_ is 0.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>

#include "calls.h"
#include "massif.h"
#include "tracer.h"
#include "valgrind_layout.h"

namespace heapwright::meter {

class MassifTracker {
 public:
  MassifTracker(Tracer& tracer, std::uint64_t page)
      : tracer_(tracer), massif_(page), layout_(page), page_(page) {}

  // The process is in its exec stop: counts the mappings of the new image.
  void executed(pid_t process);
  // A thread is at the entry of a watched call. `movable`: its arguments can be changed.
  TraceListener::Resume called(pid_t thread, const CallArguments& call, bool movable);
  void returned(pid_t thread);
  // The thread or its call has ended: a thread that waits for it may go on.
  void ended(pid_t thread);
  void tick();

  [[nodiscard]] std::uint64_t peak() const { return massif_.peak(); }
  // Whether brk and all mappings are as Valgrind would give them. If not, the peak may differ from
  // Massif's.
  [[nodiscard]] bool as_under_valgrind() const { return as_under_valgrind_; }

 private:
  struct Running {
    CallArguments call;     // as the program made it
    CallArguments changed;  // as the kernel sees it
  };
  struct Held {
    pid_t thread;
    CallArguments call;
    bool movable;
  };

  CallArguments rearrange(const CallArguments& call);
  void account(pid_t thread, const Running& running, std::uint64_t result);
  void next();

  Tracer& tracer_;
  Massif massif_;
  ValgrindLayout layout_;
  std::uint64_t page_;
  std::uint64_t brk_end_ = 0;  // the highest break that Valgrind gives; 0 if not known yet
  bool as_under_valgrind_ = true;
  bool started_ = false;
  pid_t in_call_ = 0;
  int ticks_ = 0;  // in_call_ is in its call for
  std::map<pid_t, Running> calls_;
  std::deque<Held> held_;
};

}  // namespace heapwright::meter
