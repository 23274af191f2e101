// Cuts a span of time out of a trace, complete or a sample. The result is as if a window of that
// time had been recorded (Header::window_begin): first the objects that are live at its start, as
// allocations at time 0, then a phase mark, then the events.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "event.h"
#include "live_table.h"
#include "pending_events.h"

namespace heapwright::trace {

class CutSource : public EventSource {
 public:
  // source  the trace
  // begin   of the span, in nanoseconds of the trace
  // end     of the span; kUnknown: the end of the trace
  CutSource(std::unique_ptr<EventSource> source, std::uint64_t begin, std::uint64_t end);

  const Header& header() const override { return header_; }
  bool next(Event& event) override;
  Loss loss() const override;

 private:
  struct Object {
    Event allocation;           // with its size when the span begins, by the thread that last resized it
    std::uint64_t largest = 0;  // bytes, so far
    std::uint64_t number = 0;   // in the span
  };
  struct Thread {
    std::uint32_t number = kNoNumber;  // in the span
    std::uint64_t counted = 0;         // nanoseconds: the last kTicks, or its first event
    bool seen = false;
    bool ended = false;
    bool ticks_counted = false;  // those before the end of the span, once the span has ended
  };
  static constexpr std::uint32_t kNoNumber = ~std::uint32_t{0};

  void before(const Event& event);
  void begin();
  void within(Event event);
  void after(const Event& event);
  void end(bool with_source);
  Thread& thread_of(const Event& event);
  std::uint32_t number_of(std::uint32_t thread);
  static std::uint64_t ticks_within(const Event& ticks, std::uint64_t since, std::uint64_t from,
                                    std::uint64_t to);
  void put(Event event, std::uint32_t thread, std::uint64_t time);

  std::unique_ptr<EventSource> source_;
  Header header_;
  std::uint64_t begin_;
  std::uint64_t end_;
  std::uint64_t mark_ = 0;       // phase of the mark
  bool waits_for_mark_ = false;  // the trace is a window itself, and its mark is still to come
  bool begun_ = false;
  bool passed_ = false;    // the end of the span
  bool finished_ = false;  // all events have been made
  LiveTable<Object> live_;
  std::vector<Thread> threads_;
  std::uint32_t threads_seen_ = 0;
  std::uint64_t objects_ = 0;
  PendingEvents pending_;
};

}  // namespace heapwright::trace
