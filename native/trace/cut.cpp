#include "cut.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace heapwright::trace {

CutSource::CutSource(std::unique_ptr<EventSource> source, std::uint64_t begin, std::uint64_t end)
    : source_(std::move(source)), header_(source_->header()), begin_(begin), end_(end) {
  const auto found = std::find(header_.phases.begin(), header_.phases.end(), "window");
  mark_ = static_cast<std::uint64_t>(std::distance(header_.phases.begin(), found));
  if (found == header_.phases.end()) {
    header_.phases.emplace_back("window");
  }
  waits_for_mark_ = header_.window_begin.has_value();
  const double origin = header_.window_begin.value_or(0);
  header_.window_begin = origin + static_cast<double>(begin) * 1e-9;
  if (end != kUnknown) {
    header_.window_end = origin + static_cast<double>(end) * 1e-9;
    header_.ends = true;
  }
}

bool CutSource::next(Event& event) {
  while (!pending_.pop(event)) {
    Event read;
    if (finished_) {
      return false;
    }
    if (!source_->next(read)) {
      end(true);
      continue;
    }
    if (!begun_ && !waits_for_mark_ && read.time >= begin_) {
      begin();
    }
    if (!begun_) {
      before(read);
    } else if (!passed_ && read.time <= end_) {
      within(read);
    } else {
      after(read);
    }
  }
  return true;
}

CutSource::Thread& CutSource::thread_of(const Event& event) {
  if (event.thread >= threads_.size()) {
    threads_.resize(event.thread + std::size_t{1});
  }
  Thread& thread = threads_[event.thread];
  if (!thread.seen) {
    thread.seen = true;
    thread.counted = event.time;
  }
  return thread;
}

std::uint32_t CutSource::number_of(std::uint32_t thread) {
  if (thread >= threads_.size()) {
    threads_.resize(thread + std::size_t{1});
  }
  std::uint32_t& number = threads_[thread].number;
  if (number == kNoNumber) {
    number = threads_seen_++;
  }
  return number;
}

void CutSource::put(Event event, std::uint32_t thread, std::uint64_t time) {
  event.thread = number_of(thread);
  event.time = time - std::min(time, begin_);
  pending_.push(event);
}

// Follows the live objects, the threads and their ticks up to the start of the span.
void CutSource::before(const Event& event) {
  Thread& thread = thread_of(event);
  if (is_allocation(event.kind)) {
    live_.insert(event.object, {event, event.size, 0});
  } else if (event.kind == Kind::kRealloc) {
    if (Object* const object = live_.find(event.object)) {
      object->allocation.size = event.size;
      object->allocation.thread = event.thread;
      object->largest = std::max(object->largest, event.size);
    }
  } else if (is_free(event.kind)) {
    if (live_.find(event.object) != nullptr) {
      live_.erase(event.object);
    }
  } else if (event.kind == Kind::kTicks) {
    thread.counted = event.time;
  } else if (event.kind == Kind::kThreadEnd) {
    thread.ended = true;
  } else if (event.kind == Kind::kPhase && event.value == mark_) {
    waits_for_mark_ = false;
  }
}

// Puts the objects that are live, and the mark behind them. Threads that have ended end again, as
// far as they have left objects.
void CutSource::begin() {
  begun_ = true;
  std::vector<std::uint64_t> objects;
  live_.each([&](std::uint64_t object, const Object&) { objects.push_back(object); });
  std::sort(objects.begin(), objects.end());
  for (const std::uint64_t object : objects) {
    Object& live = *live_.find(object);
    Event allocation = live.allocation;
    live.number = objects_++;
    allocation.object = live.number;
    // The weight of such an object is that of its largest size.
    const bool has_shrunk = header_.sample != 0 && header_.sample_growth && live.largest > allocation.size;
    allocation.size = has_shrunk ? live.largest : allocation.size;
    put(allocation, allocation.thread, 0);
    if (has_shrunk) {
      put({.kind = Kind::kRealloc, .object = live.number, .size = live.allocation.size}, allocation.thread,
          0);
    }
  }
  for (std::uint32_t thread = 0; thread < threads_.size(); ++thread) {
    if (threads_[thread].ended && threads_[thread].number != kNoNumber) {
      put({.kind = Kind::kThreadEnd}, thread, 0);
    }
  }
  const auto alive = std::find_if(threads_.begin(), threads_.end(),
                                  [](const Thread& thread) { return thread.seen && !thread.ended; });
  const auto thread = alive == threads_.end() ? 0 : std::distance(threads_.begin(), alive);
  put({.kind = Kind::kPhase, .value = mark_}, static_cast<std::uint32_t>(thread), 0);
}

void CutSource::within(Event event) {
  if (event.kind == Kind::kEnd) {  // by thread 0 in any trace
    pending_.push({.kind = Kind::kEnd, .time = event.time - std::min(event.time, begin_)});
    return;
  }
  Thread& thread = thread_of(event);
  if (event.kind == Kind::kTicks) {
    event.value = ticks_within(event, std::exchange(thread.counted, event.time), begin_, end_);
  } else if (event.kind == Kind::kThreadEnd) {
    thread.ended = true;
  } else if (event.kind == Kind::kSpawn) {
    if (event.value > threads_.size()) {  // threads are numbered in turn, so this one is impossible
      return;
    }
    event.value = number_of(static_cast<std::uint32_t>(event.value));
  } else if (is_allocation(event.kind)) {
    live_.insert(event.object, {event, event.size, objects_});
    event.object = objects_++;
  } else if (uses_object(event.kind)) {
    const std::uint64_t object = event.object;
    const Object* const live = live_.find(object);
    if (live == nullptr) {
      return;
    }
    event.object = live->number;
    if (is_free(event.kind)) {
      live_.erase(object);
    }
  }
  put(event, event.thread, event.time);
}

// Takes the ticks that the threads of a sample made before the end of the span and that are
// reported only now.
void CutSource::after(const Event& event) {
  passed_ = true;
  Thread& thread = thread_of(event);
  if (event.kind == Kind::kTicks && !thread.ticks_counted && thread.counted < end_) {
    Event ticks = event;
    ticks.value = ticks_within(event, thread.counted, begin_, end_);
    put(ticks, event.thread, end_);
  }
  thread.ticks_counted = thread.ticks_counted || event.kind == Kind::kTicks;
  const auto waits = [](const Thread& one) { return one.seen && !one.ended && !one.ticks_counted; };
  if (header_.sample == 0 || std::none_of(threads_.begin(), threads_.end(), waits)) {
    end(false);
  }
}

// The share of the reported ticks that fell between two moments, as if they had been made evenly.
std::uint64_t CutSource::ticks_within(const Event& ticks, std::uint64_t since, std::uint64_t from,
                                      std::uint64_t to) {
  const std::uint64_t begin = std::clamp(since, from, to);
  const std::uint64_t end = std::clamp(ticks.time, from, to);
  if (since >= from && ticks.time <= to) {
    return ticks.value;
  }
  const double share =
      static_cast<double>(end - std::min(begin, end)) /
      static_cast<double>(std::max<std::uint64_t>(1, ticks.time - std::min(since, ticks.time)));
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(ticks.value) * share));
}

// with_source  the trace itself has ended
void CutSource::end(bool with_source) {
  finished_ = true;
  if (begun_ && end_ != kUnknown && (!with_source || passed_)) {
    pending_.push({.kind = Kind::kEnd, .thread = 0, .time = end_ - begin_});
  }
}

Loss CutSource::loss() const {
  Loss loss = source_->loss();
  if (passed_) {
    loss.cut_short = false;
    loss.why = loss.bytes > 0 || loss.events > 0 ? loss.why : "";
  }
  return loss;
}

}  // namespace heapwright::trace
