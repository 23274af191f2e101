#include "statistics.h"

#include <algorithm>
#include <utility>

namespace heapwright::model {

using trace::Event;
using trace::Kind;

namespace {
constexpr std::size_t kLargeSizes = 65536;  // distinct sizes from 64 KiB that are counted
}

void Curve::add(std::uint64_t time, std::uint64_t live, std::uint64_t events) {
  if (points_.empty() || added_ == width_) {
    if (points_.size() == kPoints) {
      for (std::size_t i = 0; i < kPoints / 2; ++i) {
        const Point& a = points_[2 * i];
        const Point& b = points_[2 * i + 1];
        points_[i] = {b.time, b.live, std::max(a.peak, b.peak), a.events + b.events};
      }
      points_.resize(kPoints / 2);
      width_ *= 2;
    }
    points_.emplace_back();
    added_ = 0;
  }
  ++added_;
  Point& point = points_.back();
  point.time = std::max(point.time, time);
  point.live = live;
  point.peak = std::max(point.peak, live);
  point.events += events;
}

void ResidentCurve::add(const Reading& reading) {
  if (++waiting_ < every_ && !points_.empty() && (!reading.heap || points_.back().heap)) {
    return;
  }
  waiting_ = 0;
  if (points_.size() == kPoints) {
    for (std::size_t i = 0; i < kPoints / 2; ++i) {
      const Reading& a = points_[2 * i];
      const Reading& b = points_[2 * i + 1];
      points_[i] = b.heap && !a.heap ? b : a;
    }
    points_.resize(kPoints / 2);
    every_ *= 2;
  }
  points_.push_back(reading);
}

void Statistics::add(const Event& event, const Multiplicity& of) {
  count_event(event, of.objects);
  if (is_allocation(event.kind)) {
    on_alloc(event, of);
  } else if (is_free(event.kind)) {
    on_free(event, of);
  } else if (event.kind == Kind::kRealloc) {
    on_realloc(event, of);
  } else if (has_value(event.kind)) {
    note_reading(event);
  } else if (event.kind == Kind::kTouched) {
    if (const Block* const block = blocks_.find(event.object)) {
      note_touched(event, *block, of.objects);
    }
  }
  const auto times = static_cast<double>(of.objects);
  over_events_.live += times * static_cast<double>(live_);
  over_events_.rounded += times * static_cast<double>(rounded_);
  over_events_.pages += times * static_cast<double>(pages(rounded_));
  curve.add(duration, live_, of.objects);
}

void Statistics::free_some(const Event& event, std::uint64_t objects) {
  if (const Block* const block = blocks_.find(event.object)) {
    Event free = event;
    free.kind = Kind::kFree;
    count_event(free, objects).frees += objects;
    lifetimes[log_bin(ticks - block->tick)].add(block->size, objects);
    lifetimes_ns[log_bin(event.time - std::min(event.time, block->time))].add(block->size, objects);
    take_off(*block, objects);
  }
}

void Statistics::add_freed_at_once(const Event& allocation, std::uint64_t times) {
  Event event = allocation;
  event.time = duration;
  ThreadCounts& thread = count_event(event, times);
  thread.allocations += times;
  thread.frees += times;
  thread.bytes += times * event.size;
  event.kind = Kind::kFree;
  count_event(event, times);
  ticks += times;
  count_size(event.size, times);
  asked_bytes += times * event.size;
  lifetimes[0].add(event.size, times);
  lifetimes_ns[0].add(event.size, times);
}

ThreadCounts& Statistics::count_event(const Event& event, std::uint64_t times) {
  pass_time(event.time);
  events += times;
  kinds[static_cast<unsigned>(event.kind) % kinds.size()] += times;
  if (event.thread >= threads.size()) {
    threads.resize(event.thread + 1);
  }
  ThreadCounts& thread = threads[event.thread];
  if (thread.events == 0) {
    thread.first = event.time;
  }
  thread.events += times;
  thread.last = std::max(thread.last, event.time);
  return thread;
}

// Adds the live bytes since the last event to the averages. Times of different threads may be
// slightly out of order.
void Statistics::pass_time(std::uint64_t time) {
  if (time <= duration) {
    return;
  }
  const auto passed = static_cast<double>(time - duration);
  over_time_.live += static_cast<double>(live_) * passed;
  over_time_.rounded += static_cast<double>(rounded_) * passed;
  over_time_.pages += static_cast<double>(pages(rounded_)) * passed;
  duration = time;
}

void Statistics::on_alloc(const Event& event, const Multiplicity& of) {
  ticks += of.ticks;
  count_size(event.size, of.objects);
  asked_bytes += event.size * of.objects;
  ThreadCounts& thread = threads[event.thread];
  thread.allocations += of.objects;
  thread.bytes += event.size * of.objects;
  if (event.kind == Kind::kAligned) {
    alignments[event.alignment] += of.objects;
  }
  blocks_.insert(event.object, {event.size, ticks, ticks, event.time, event.thread, 0});
  live_ += event.size * of.objects;
  live_objects_ += of.objects;
  large_live_ += large_part(event.size) * of.objects;
  rounded_ += rounded(event.size) * of.objects;
  note_peaks(event);
}

void Statistics::on_realloc(const Event& event, const Multiplicity& of) {
  Block* block = blocks_.find(event.object);
  if (block == nullptr) {
    ++unknown_object_events;
    return;
  }
  ticks += of.ticks;
  count_size(event.size, of.ticks);
  const std::uint64_t grown = (event.size - std::min(event.size, block->size)) * of.objects;
  Amount& resized = event.size >= block->size ? resized_up : resized_down;
  resized.count += of.ticks;
  resized.bytes += grown + (block->size - std::min(event.size, block->size)) * of.objects;
  asked_bytes += grown;
  threads[event.thread].bytes += grown;
  live_ += (event.size - block->size) * of.objects;
  large_live_ += (large_part(event.size) - large_part(block->size)) * of.objects;
  rounded_ += (rounded(event.size) - rounded(block->size)) * of.objects;
  Amount& once = chain_lengths[std::min<std::uint32_t>(block->resizes, 64)];
  if (block->resizes > 0) {
    once.count -= of.objects;
    once.bytes -= block->size * of.objects;
  }
  ++block->resizes;
  chain_lengths[std::min<std::uint32_t>(block->resizes, 64)].add(event.size, of.objects);
  block->size = event.size;
  block->changed = ticks;
  block->thread = event.thread;
  note_peaks(event);
}

void Statistics::on_free(const Event& event, const Multiplicity& of) {
  const Block* block = blocks_.find(event.object);
  if (block == nullptr) {
    ++unknown_object_events;
    return;
  }
  threads[event.thread].frees += of.objects;
  if (block->thread != event.thread) {
    remote_frees.add(block->size, of.objects);
    threads[event.thread].remote_frees += of.objects;
  }
  if (event.touched != trace::kUnknown && block->size >= kLargeBlock) {
    large_freed.add(block->size, of.objects);
    large_touched += std::min(event.touched, pages(block->size)) * of.objects;
    note_touched(event, *block, of.objects);
  }
  lifetimes[log_bin(of.lifetime.value_or(ticks - block->tick))].add(block->size, of.objects);
  lifetimes_ns[log_bin(event.time - std::min(event.time, block->time))].add(block->size, of.objects);
  take_off(*block, of.objects);
  blocks_.erase(event.object);
}

// Takes freed objects off the live ones.
void Statistics::take_off(const Block& block, std::uint64_t objects) {
  live_ -= block.size * objects;
  live_objects_ -= objects;
  large_live_ -= large_part(block.size) * objects;
  rounded_ -= rounded(block.size) * objects;
}

void Statistics::note_touched(const Event& event, const Block& block, std::uint64_t objects) {
  if (event.touched != trace::kUnknown && block.changed <= peak_tick) {
    const std::uint64_t touched = std::min(event.touched, large_part(block.size)) * objects;
    peak_untouched -= std::min(touched, peak_untouched);
  }
}

void Statistics::note_reading(const Event& event) {
  if (event.kind == Kind::kUntouched) {
    reading_.untouched = event.value;
  } else if (event.kind == Kind::kHeap) {
    reading_.heap = event.value;
  } else if (event.kind == Kind::kFiles) {
    reading_.files = event.value;
  } else if (event.kind == Kind::kResident) {
    peak_resident = std::max(peak_resident, event.value);
    Reading now = std::exchange(reading_, {});
    now.resident = event.value;
    now.time = event.time;
    now.live = live_;
    resident_curve.add(now);
    if (!now.files) {
      return;  // a trace without parts
    }
    if (first.resident == 0) {
      first = now;
    }
    highest_of_all_ = std::max(highest_of_all_, now.resident);
    keep_at_peak(highest, now, highest_of_all_);
    if (now.heap) {
      highest_of_heap_ = std::max(highest_of_heap_, now.resident);
      keep_at_peak(highest_with_heap, now, highest_of_heap_);
    }
    last = now;
  }
}

void Statistics::keep_at_peak(Reading& kept, const Reading& now, std::uint64_t peak) const {
  const auto is_peak = [peak](const Reading& reading) { return reading.resident >= peak - peak / 100; };
  const bool more_live = static_cast<double>(now.live) > live_noise_ * static_cast<double>(kept.live);
  if (!is_peak(kept) || (is_peak(now) && more_live)) {
    kept = now;
  }
}

// The reading with malloc's own memory stands for the peak if its resident memory is at least 95%
// of the peak's, and its live bytes at least 90%: those of a reading at the end may be freed.
const Reading& Statistics::peak_reading() const {
  const auto share = [](std::uint64_t part, std::uint64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<std::uint64_t>(whole, 1));
  };
  const bool as_live = share(highest_with_heap.live, highest.live) * live_noise_ >= 0.9;
  return share(highest_with_heap.resident, highest.resident) >= 0.95 && as_live ? highest_with_heap : highest;
}

void Statistics::count_size(std::uint64_t size, std::uint64_t times) {
  largest = std::max(largest, size);
  sizes[log_bin(size)].add(size, times);
  if (size < kLargeBlock) {
    small_sizes_[size] += times;
  } else if (std::uint64_t* known = large_sizes_.find(size)) {
    *known += times;
  } else if (large_sizes_.size() < kLargeSizes) {
    large_sizes_.insert(size, times);
  }
}

void Statistics::note_peaks(const Event& event) {
  if (live_ > peak_live) {
    peak_live = live_;
    peak_time = event.time;
    peak_event = events;
    peak_tick = ticks;
    peak_untouched = large_live_;
  }
  peak_objects = std::max(peak_objects, live_objects_);
  peak_rounded = std::max(peak_rounded, rounded_);
}

std::uint64_t Statistics::allocations() const {
  return kinds[static_cast<unsigned>(Kind::kMalloc)] + kinds[static_cast<unsigned>(Kind::kCalloc)] +
         kinds[static_cast<unsigned>(Kind::kAligned)];
}

std::uint64_t Statistics::frees() const {
  return kinds[static_cast<unsigned>(Kind::kFree)] + kinds[static_cast<unsigned>(Kind::kFreeSized)];
}

double Statistics::average(double Mean::* part) const {
  if (has_times()) {
    return over_time_.*part / static_cast<double>(duration);
  }
  return events == 0 ? 0 : over_events_.*part / static_cast<double>(events);
}

double Statistics::mean_live() const { return average(&Mean::live); }
double Statistics::mean_rounded() const { return average(&Mean::rounded); }
double Statistics::mean_pages() const { return average(&Mean::pages); }

std::vector<std::pair<std::uint64_t, std::uint64_t>> Statistics::top_sizes(std::size_t limit) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  for (std::uint64_t size = 0; size < small_sizes_.size(); ++size) {
    if (small_sizes_[size] > 0) {
      all.emplace_back(size, small_sizes_[size]);
    }
  }
  large_sizes_.each([&all](std::uint64_t size, std::uint64_t count) { all.emplace_back(size, count); });
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  all.resize(std::min(all.size(), limit));
  return all;
}

}  // namespace heapwright::model
