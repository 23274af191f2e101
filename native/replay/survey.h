// The first pass over a trace to be replayed: what can only be known by looking ahead.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trace/event.h"

namespace heapwright::replay {

struct ThreadFacts {
  std::uint64_t last = 0;  // the number of its last event
  bool ends = false;       // before the trace does
};

struct Survey {
  std::vector<bool> used;      // by object: used after it was made
  std::vector<bool> crossing;  // by object: by another thread than its maker
  std::unordered_map<std::uint64_t, std::uint64_t>
      touched;  // by object: how many bytes ever were, where it is known
  std::vector<ThreadFacts> threads;
  std::uint64_t duration = 0;
  std::uint64_t peak_live_bytes = 0;
};

Survey survey(trace::EventSource& source);

}  // namespace heapwright::replay
