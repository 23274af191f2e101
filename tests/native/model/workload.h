// Makes traces for tests: workloads with phases. It also checks whether a sequence of events is a
// possible trace.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "../trace/vector_source.h"
#include "trace/event.h"

namespace heapwright::model {

inline std::vector<trace::Event> all_of(trace::EventSource& source) {
  std::vector<trace::Event> events;
  for (trace::Event event; source.next(event);) {
    events.push_back(event);
  }
  return events;
}

// Counts of a trace by a simple reader. judge() also checks that the trace is valid: objects are
// numbered in order of allocation and used while they are live, threads are numbered in order of
// appearance, and times do not fall.
struct Judged {
  std::uint64_t peak = 0;
  std::uint64_t live = 0;
  std::uint64_t allocations = 0;
  std::uint64_t reallocs = 0;
  std::uint64_t frees = 0;
  std::uint64_t remote_frees = 0;
  std::set<std::uint32_t> threads;
};

inline Judged judge(const std::vector<trace::Event>& events) {
  struct Block {
    std::uint64_t size;
    std::uint32_t thread;
  };
  Judged found;
  std::map<std::uint64_t, Block> blocks;
  std::uint64_t time = 0;
  for (const trace::Event& event : events) {
    EXPECT_GE(event.time, time);
    time = event.time;
    EXPECT_LE(event.thread, found.threads.size());
    found.threads.insert(event.thread);
    if (is_allocation(event.kind)) {
      EXPECT_EQ(event.object, found.allocations++);
      blocks[event.object] = {event.size, event.thread};
      found.live += event.size;
    } else if (event.kind == trace::Kind::kRealloc || is_free(event.kind)) {
      const auto known = blocks.find(event.object);
      if (known == blocks.end()) {
        ADD_FAILURE() << "object " << event.object << " is not alive";
        return found;
      }
      found.live -= known->second.size;
      if (event.kind == trace::Kind::kRealloc) {
        ++found.reallocs;
        found.live += event.size;
        known->second = {event.size, event.thread};
      } else {
        ++found.frees;
        found.remote_frees += known->second.thread != event.thread ? 1 : 0;
        blocks.erase(known);
      }
    }
    found.peak = std::max(found.peak, found.live);
  }
  return found;
}

// Returns the trace of a program in phases. Each phase builds up blocks, allocates and frees
// others, and frees a part of the first. Some grow by realloc, a few are large, other threads free
// some. `phases`: their number; `threads`: how many allocate; both with `seed` fix the trace.
inline std::vector<trace::Event> workload(std::uint64_t seed, std::size_t phases = 4,
                                          std::uint32_t threads = 1) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  std::vector<trace::Event> events;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> kept;  // object, size
  std::vector<std::uint64_t> brief;
  std::uint64_t made = 0;
  std::uint64_t time = 0;
  std::uint32_t seen = 0;
  const auto push = [&](trace::Kind kind, std::uint64_t object, std::uint64_t size) {
    trace::Event event;
    event.kind = kind;
    event.time = time += below(200);
    event.thread = static_cast<std::uint32_t>(below(std::min(threads, seen + 1)));
    seen = std::max(seen, event.thread + 1);
    event.object = object;
    event.size = size;
    events.push_back(event);
  };
  for (std::size_t phase = 0; phase < phases; ++phase) {
    const std::uint64_t base = 16 + below(200);
    const std::uint64_t count = 2000 + below(8000);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t size = below(500) == 0 ? 4096 + below(200000) : base + below(8) * 24;
      push(below(10) == 0 ? trace::Kind::kCalloc : trace::Kind::kMalloc, made, size);
      if (below(3) == 0) {
        kept.emplace_back(made, size);
      } else {
        brief.push_back(made);
      }
      ++made;
      if (!kept.empty() && below(20) == 0) {
        auto& [object, old] = kept[kept.size() - 1 - below(std::min<std::uint64_t>(kept.size(), 50))];
        old = old * 3 / 2 + 8;
        push(trace::Kind::kRealloc, object, old);
      }
      while (brief.size() > 30 + base) {
        const std::size_t at = below(brief.size());
        push(trace::Kind::kFree, brief[at], 0);
        brief.erase(brief.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    const std::uint64_t drops = below(kept.size() + 1);
    for (std::uint64_t i = 0; i < drops; ++i) {
      push(trace::Kind::kFree, kept.back().first, 0);
      kept.pop_back();
    }
  }
  return events;
}

}  // namespace heapwright::model
