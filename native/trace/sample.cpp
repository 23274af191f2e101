#include "sample.h"

#include <algorithm>
#include <cmath>

namespace heapwright::trace {

double chance(std::uint64_t size, std::uint64_t rate) {
  return chance_of_draws(1 + static_cast<double>(further_draws(size)), rate);
}

std::uint64_t further_draws(std::uint64_t size) { return size / sample_choice::kDrawBytes; }

double chance_of_draws(double draws, std::uint64_t rate) {
  return rate <= 1 ? 1 : -std::expm1(draws * std::log1p(-1 / static_cast<double>(rate)));
}

SampleSource::SampleSource(std::unique_ptr<EventSource> source, std::uint64_t rate, std::uint64_t seed)
    : source_(std::move(source)), header_(source_->header()), from_rate_(header_.sample), bits_(seed) {
  header_.sample = rate;
  header_.sample_growth = header_.sample_growth || from_rate_ == 0;
}

// The chance of an object of the source whose largest size so far is `size`. It grows with the
// size. An object that the source has since it grew is as likely to be here as others of its size.
double SampleSource::chance_here(std::uint64_t size) const {
  return chance(size, header_.sample) / chance(size, from_rate_);
}

bool SampleSource::next(Event& event) {
  while (!pending_.pop(event)) {
    if (ended_) {
      return false;
    }
    if (source_->next(event)) {
      take(event);
      continue;
    }
    ended_ = true;
    for (std::uint32_t thread = 0; thread < threads_.size(); ++thread) {
      put_ticks(thread, threads_[thread].last);
    }
  }
  return true;
}

void SampleSource::take(Event event) {
  if (event.thread >= threads_.size()) {
    threads_.resize(event.thread + std::size_t{1});
  }
  Thread& thread = threads_[event.thread];
  thread.last = std::max(thread.last, event.time);
  if (event.kind == Kind::kTicks) {
    thread.ticks += event.value;
    return;
  }
  const std::uint64_t own =
      from_rate_ == 0 && is_tick(event.kind) ? 1 : 0;  // before a late choice changes the kind
  const bool kept =
      is_allocation(event.kind) || uses_object(event.kind) ? use(event) : event.kind != Kind::kSpawn;
  if (kept) {
    // A phase or a reading gets the ticks before it too, so that it keeps its place among them.
    put_ticks(event.thread, event.time);
    pending_.push(event);
  }
  threads_[event.thread].ticks += own;
  if (event.kind == Kind::kThreadEnd) {
    numbers_.forget(event.thread);
  }
}

// Decides whether an event of an object is in the sample, and gives the object its number there.
bool SampleSource::use(Event& event) {
  if (is_allocation(event.kind)) {
    live_.insert(event.object, {numbers_.next(event.thread, event.size, bits_), 0, false});
  }
  const std::uint64_t object = event.object;
  Object* const live = live_.find(object);
  if (live == nullptr) {
    return false;
  }
  const bool may_begin = is_allocation(event.kind) || (event.kind == Kind::kRealloc && header_.sample_growth);
  if (!live->chosen && may_begin && live->drawn < chance_here(event.size)) {
    live->chosen = true;
    live->number = objects_++;
    event.kind = event.kind == Kind::kRealloc ? Kind::kMalloc : event.kind;
  }
  const bool kept = live->chosen;
  event.object = live->number;
  if (is_free(event.kind)) {
    live_.erase(object);
  }
  return kept;
}

void SampleSource::put_ticks(std::uint32_t thread, std::uint64_t time) {
  if (std::uint64_t& ticks = threads_[thread].ticks; ticks > 0) {
    pending_.push({.kind = Kind::kTicks, .thread = thread, .time = time, .value = ticks});
    ticks = 0;
  }
}

}  // namespace heapwright::trace
