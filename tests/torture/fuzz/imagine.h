// Makes a valid trace of a fuzzer's bytes: it satisfies all rules of trace/event.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "input.h"
#include "trace/event.h"

namespace heapwright::fuzz {

// Makes a valid trace of a fuzzer's choices.
inline std::vector<trace::Event> imagine(Input in) {
  using trace::Kind;
  std::vector<trace::Event> events;
  std::vector<std::uint64_t> alive;
  std::map<std::uint32_t, std::uint64_t> clocks;
  std::uint64_t made = 0;
  std::uint32_t threads = 0;
  std::uint64_t now = 0;
  while (!in.empty() && events.size() < 4000) {
    const unsigned choice = in.byte();
    trace::Event event;
    event.kind = static_cast<Kind>(1 + choice % 13);
    event.thread = threads == 0 ? 0 : in.byte() % (threads + 1);
    threads = std::max(threads, event.thread + 1);
    now += choice >= 0xC0 ? in.any() & 0xFFFFFFFFFF : choice / 16;
    event.time = clocks[event.thread] = std::max(now, clocks[event.thread]);
    if (is_allocation(event.kind)) {
      event.object = made++;
      event.size = in.any() & ((std::uint64_t{1} << 47) - 1);
      event.alignment = event.kind == Kind::kAligned ? std::uint64_t{1} << in.byte() % 40 : 0;
      alive.push_back(event.object);
    } else if (event.kind == Kind::kFork || event.kind == Kind::kPhase || event.kind == Kind::kResident) {
      event.value = in.any();
    } else if (event.kind != Kind::kThreadStart && event.kind != Kind::kThreadEnd) {
      if (alive.empty()) {
        continue;
      }
      const std::size_t at = in.any() % alive.size();
      event.object = alive[at];
      if (event.kind == Kind::kRealloc || event.kind == Kind::kFreeSized) {
        event.size = in.any() & ((std::uint64_t{1} << 47) - 1);
      } else if (event.kind == Kind::kTouched || (event.kind == Kind::kFree && choice % 2 == 1)) {
        event.touched = in.any();
      }
      if (is_free(event.kind)) {
        alive[at] = alive.back();
        alive.pop_back();
      }
    }
    events.push_back(event);
  }
  return events;
}

}  // namespace heapwright::fuzz
