// Makes the first pass over a trace that is made ready for replay: collects the facts that lie
// later in the trace than the event they are needed for.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trace/event.h"

namespace heapwright::replay {

struct ThreadFacts {
  std::uint64_t last = 0;  // number of its last event
  bool ends = false;       // whether it ends before the trace does
  bool runs = false;       // whether it has an event
};

struct Survey {
  std::vector<bool> used;      // by object: whether any event uses it after its allocation
  std::vector<bool> crossing;  // by object: whether a thread uses it that did not allocate it
  // By object: bytes of it that were ever touched, if known.
  std::unordered_map<std::uint64_t, std::uint64_t> touched;
  // By object that the program fills in steps: the touched bytes after each step, in the order of
  // its kTouchedSoFar events. Its touched bytes after the last step are in `touched`.
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> steps;
  // Returns how many bytes of an object were ever touched; all that a kTouch can hold if unknown.
  std::uint64_t touched_in_all(std::uint64_t object) const {
    const auto found = touched.find(object);
    return found == touched.end() ? ~std::uint64_t{0} >> 4 : found->second;
  }
  // Returns how many bytes were touched until step `step` of the object, and counts it; in all if
  // there is no such step.
  std::uint64_t touched_until(std::uint64_t object, std::uint32_t& step) const {
    const auto found = steps.find(object);
    return found == steps.end() || step >= found->second.size() ? touched_in_all(object)
                                                                : found->second[step++];
  }
  std::vector<ThreadFacts> threads;
  // Object 0 is the memory that libstdc++ keeps for exceptions when there is no other: the first
  // block of a program in C++, never freed. A replay whose process has libstdc++ would allocate it
  // twice.
  bool has_exception_pool = false;
  std::uint64_t duration = 0;  // nanoseconds
  std::uint64_t peak_live_bytes = 0;
};

Survey survey(trace::EventSource& source);

}  // namespace heapwright::replay
