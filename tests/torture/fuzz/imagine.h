// Makes a valid trace of a fuzzer's bytes: it satisfies all rules of trace/event.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "input.h"
#include "trace/event.h"

namespace heapwright::fuzz {

// Says in the header of a trace which kinds of events imagine() may make.
inline trace::Header imagined_header() {
  trace::Header header;
  header.forked = false;
  header.spawns = header.ends = header.fills = true;
  return header;
}

// Makes a valid trace of a fuzzer's choices. It has all kinds of events but kTicks.
inline std::vector<trace::Event> imagine(Input in) {
  using trace::Kind;
  constexpr unsigned kKinds = static_cast<unsigned>(trace::kLastKind);
  std::vector<trace::Event> events;
  std::vector<std::uint64_t> alive;
  std::vector<std::uint32_t> makers;  // by object: the thread that allocated it
  std::map<std::uint32_t, std::uint64_t> clocks;
  std::uint32_t threads = 0;
  std::uint64_t now = 0;
  while (!in.empty() && events.size() < 4000) {
    const unsigned choice = in.byte();
    trace::Event event;
    event.kind = static_cast<Kind>(1 + choice % kKinds);
    event.thread = threads == 0 ? 0 : in.byte() % (threads + 1);
    if (event.kind == Kind::kTicks || (event.kind == Kind::kEnd && !in.empty())) {
      continue;
    }
    std::size_t at = 0;  // in `alive`
    if (uses_object(event.kind)) {
      if (alive.empty()) {
        continue;
      }
      at = in.any() % alive.size();
      event.object = alive[at];
    }
    if (event.kind == Kind::kEnd) {
      event.thread = 0;
    } else if (event.kind == Kind::kTouchedSoFar) {
      event.thread = makers[event.object];
    }
    threads = std::max(threads, event.thread + 1);
    now += choice >= 0xC0 ? in.any() & 0xFFFFFFFFFF : choice / 16;
    event.time = clocks[event.thread] = std::max(now, clocks[event.thread]);
    if (is_allocation(event.kind)) {
      event.object = makers.size();
      event.size = in.any() & ((std::uint64_t{1} << 47) - 1);
      event.alignment = event.kind == Kind::kAligned ? std::uint64_t{1} << in.byte() % 40 : 0;
      alive.push_back(event.object);
      makers.push_back(event.thread);
    } else if (event.kind == Kind::kSpawn) {
      event.value = threads++;
    } else if (has_value(event.kind)) {
      event.value = in.any();
      if (event.kind >= Kind::kUntouched && event.kind <= Kind::kFiles) {  // before a kResident
        events.push_back(event);
        event.kind = Kind::kResident;
        event.value = in.any();
      }
    } else if (event.kind == Kind::kRealloc || event.kind == Kind::kFreeSized) {
      event.size = in.any() & ((std::uint64_t{1} << 47) - 1);
    } else if (event.kind == Kind::kTouched || event.kind == Kind::kTouchedSoFar ||
               (event.kind == Kind::kFree && choice / kKinds % 2 == 1)) {
      event.touched = in.any();
    }
    if (is_free(event.kind)) {
      alive[at] = alive.back();
      alive.pop_back();
    }
    events.push_back(event);
  }
  return events;
}

}  // namespace heapwright::fuzz
