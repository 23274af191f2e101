#include "survey.h"

#include <algorithm>

#include "trace/live_table.h"

namespace heapwright::replay {

using trace::Event;
using trace::Kind;

namespace {

// Bytes of libstdc++'s pool for exceptions on 64-bit machines: until GCC 12, and since.
constexpr std::uint64_t kOldPool = 72704;
constexpr std::uint64_t kNewPool = 73728;

bool is_exception_pool(const Event& event) {
  return event.kind == Kind::kMalloc && event.object == 0 && event.thread == 0 &&
         (event.size == kOldPool || event.size == kNewPool);
}

}  // namespace

Survey survey(trace::EventSource& source) {
  struct Live {
    std::uint64_t size = 0;
    std::uint32_t maker = 0;
  };
  Survey found;
  trace::LiveTable<Live> live;
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;
  for (Event event; source.next(event); number++) {
    if (event.thread >= found.threads.size()) {
      found.threads.resize(event.thread + std::size_t{1});
    }
    ThreadFacts& thread = found.threads[event.thread];
    thread.last = number;
    thread.runs = true;
    thread.ends = thread.ends || (event.kind == Kind::kThreadEnd && event.thread != 0);
    found.duration = std::max(found.duration, event.time);
    if (is_allocation(event.kind)) {
      // Objects are numbered without gaps. A source that skips some (after a seek) has skipped
      // lower numbers.
      if (event.object >= found.used.size()) {
        found.used.resize(event.object + 1);
        found.crossing.resize(event.object + 1);
      }
      found.has_exception_pool = found.has_exception_pool || is_exception_pool(event);
      if (live.find(event.object) == nullptr) {
        live.insert(event.object, {event.size, event.thread});
        bytes += event.size;
      }
    } else if (Live* object = live.find(event.object); object != nullptr && uses_object(event.kind)) {
      if (event.kind == Kind::kTouchedSoFar) {
        found.steps[event.object].push_back(event.touched);
        found.used[event.object] = true;
        found.crossing[event.object] = found.crossing[event.object] || object->maker != event.thread;
        continue;
      }
      if (event.touched != trace::kUnknown) {
        found.touched[event.object] = event.touched;
      }
      if (event.kind == Kind::kTouched) {
        continue;
      }
      found.used[event.object] = true;
      if (object->maker != event.thread) {
        found.crossing[event.object] = true;
      }
      if (event.kind == Kind::kRealloc) {
        bytes += event.size - object->size;
        object->size = event.size;
      } else if (is_free(event.kind)) {
        bytes -= object->size;
        live.erase(event.object);
      }
    }
    found.peak_live_bytes = std::max(found.peak_live_bytes, bytes);
  }
  found.has_exception_pool = found.has_exception_pool && !found.used[0];
  return found;
}

}  // namespace heapwright::replay
