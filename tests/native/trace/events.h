// Makes random valid traces for tests.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "trace/event.h"

namespace heapwright::trace {

// Returns random events of every kind, with sizes, times and distances of every magnitude.
//
// seed     of the random numbers
// count    the number of events
// threads  the number of threads
inline std::vector<Event> random_events(std::uint64_t seed, std::size_t count, std::uint32_t threads) {
  std::mt19937_64 random(seed);
  const auto magnitude = [&random](unsigned bits) { return random() >> (64 - 1 - random() % bits); };
  std::vector<Event> events;
  std::vector<std::uint64_t> live;
  std::uint64_t objects = 0;
  std::uint64_t time = 0;
  while (events.size() < count) {
    Event event;
    time += random() % 4 == 0 ? magnitude(30) : random() % 300;
    event.time = time;
    event.thread = static_cast<std::uint32_t>(random() % threads);
    event.kind = static_cast<Kind>(1 + random() % static_cast<unsigned>(kLastKind));
    const std::size_t at = live.empty() ? 0 : live.size() - 1 - magnitude(62) % live.size();
    if (is_allocation(event.kind)) {
      event.object = objects++;
      event.size = magnitude(random() % 100 == 0 ? 50 : 14);
      event.alignment = event.kind == Kind::kAligned ? std::uint64_t{1} << (random() % 20) : 0;
      live.push_back(event.object);
    } else if (event.kind == Kind::kThreadStart || event.kind == Kind::kThreadEnd ||
               event.kind == Kind::kEnd) {
      if (random() % 50 != 0) {
        continue;
      }
    } else if (has_value(event.kind)) {
      event.value = magnitude(40);
    } else {
      if (live.empty()) {
        continue;
      }
      event.object = live[at];
      if (event.kind == Kind::kRealloc || event.kind == Kind::kFreeSized) {
        event.size = magnitude(20);
      }
      if (event.kind == Kind::kTouched || event.kind == Kind::kTouchedSoFar ||
          (event.kind == Kind::kFree && random() % 3 == 0)) {
        event.touched = magnitude(30);
      }
      if (is_free(event.kind)) {
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    events.push_back(event);
  }
  return events;
}

}  // namespace heapwright::trace
