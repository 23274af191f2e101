// Stays of a window as they begin and end: whose turn it is, what a realloc takes, which thread does it.
#include <algorithm>

#include "windows_source.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

namespace {

std::uint32_t drawn(const std::vector<std::pair<std::uint32_t, std::uint64_t>>& list, double draw) {
  for (const auto& [thread, count] : list) {
    draw -= static_cast<double>(count);
    if (draw < 0) {
      return thread;
    }
  }
  return list.back().first;
}

double sum_of(const std::vector<std::pair<std::uint32_t, std::uint64_t>>& list) {
  double sum = 0;
  for (const auto& [thread, count] : list) {
    sum += static_cast<double>(count);
  }
  return sum;
}

}  // namespace

void WindowsSource::emit(Event event, std::uint32_t slot) {
  event.time = static_cast<std::uint64_t>(since_ + length_ * part_);
  if (by_slot_[slot] == 0) {
    by_slot_[slot] = ++threads_;
    if (threads_ > 1) {
      Event start;
      start.kind = Kind::kThreadStart;
      start.thread = static_cast<std::uint32_t>(threads_ - 1);
      start.time = event.time;
      ready_.push_back(start);
    }
  }
  event.thread = static_cast<std::uint32_t>(by_slot_[slot] - 1);
  ready_.push_back(event);
}

std::uint32_t WindowsSource::pick_thread(std::uint32_t kind) {
  const auto& threads = model_.classes[kind].threads;
  return threads.size() == 1 ? threads.front().first : drawn(threads, rng_.uniform() * sum_of(threads));
}

// The thread of group `by` that frees a stay which the thread `made` began.
std::uint32_t WindowsSource::freeing_thread(std::uint32_t kind, std::uint32_t made, std::uint32_t by) {
  const SizeClass& c = model_.classes[kind];
  const bool own = group_of(made) == by;
  double sum = own ? static_cast<double>(c.freed_own) : 0;
  for (const auto& [thread, count] : c.freed_by) {
    sum += group_of(thread) == by ? static_cast<double>(count) : 0;
  }
  double draw = sum == 0 || c.freed_by.empty() ? 0 : rng_.uniform() * sum;
  if (own) {
    draw -= static_cast<double>(c.freed_own);
    if (draw < 0 || sum == 0) {
      return made;
    }
  }
  for (const auto& [thread, count] : c.freed_by) {
    if (group_of(thread) == by) {
      draw -= static_cast<double>(count);
      if (draw < 0) {
        return thread;
      }
    }
  }
  return own ? made : std::min(by, model_.threads - 1);
}

void WindowsSource::free_one(const Held& held, std::uint32_t kind, std::uint32_t by) {
  Event event;
  event.kind =
      model_.sized_frees > 0 && rng_.below(1000) < model_.sized_frees ? Kind::kFreeSized : Kind::kFree;
  event.object = held.object;
  event.size = event.kind == Kind::kFreeSized ? held.size : 0;
  event.touched = touched_of(kind, held.size);
  count(by, -static_cast<std::int64_t>(held.size));
  emit(event, freeing_thread(kind, held.thread, by));
}

// A stay whose time has come is freed, or waits for a realloc.
void WindowsSource::release(std::uint32_t kind, const Held& held, std::uint32_t by) {
  ClassWindow& c = classes_[kind];
  if (c.resizes > 0 && c.ends <= c.resizes) {
    c.waiting.push_back(held);
    return;
  }
  c.ends -= c.ends > 0 ? 1 : 0;
  free_one(held, kind, by);
}

// The stay of a class that would end next, for a realloc; false where there is none yet.
bool WindowsSource::take_victim(std::uint32_t kind, Held& held) {
  ClassWindow& c = classes_[kind];
  while (!c.due.empty() && briefs_[c.due.top().brief].ended) {
    c.due.pop();
  }
  const bool old = c.olds_taken < c.olds.size() && cohorts_[kind].alive() > 0;
  if (!c.waiting.empty()) {
    held = c.waiting.back();
    c.waiting.pop_back();
  } else if (!c.due.empty() && (!old || c.due.top().rank <= c.olds[c.olds_taken])) {
    Brief& brief = briefs_[c.due.top().brief];
    c.due.pop();
    brief.ended = true;
    held = brief.held;
  } else if (old) {
    ++c.olds_taken;
    held = cohorts_[kind].take(c.old, model_.classes[kind], false, rng_);
  } else {
    return false;
  }
  c.ends -= c.ends > 0 ? 1 : 0;
  c.resizes -= c.resizes > 0 ? 1 : 0;
  return true;
}

// When a stay that begins now and does not outlive the window ends, by the clock of who ends it.
Due WindowsSource::due_of(const Begin& begin) const {
  const Actor& own = actors_[model_.classes[begin.kind].group];
  const Actor& by = actors_[begin.freed_by];
  std::uint64_t until = own.done + 1 + begin.length;
  if (begin.until > 0) {
    until = whole(static_cast<double>(begin.until) * static_cast<double>(by.clock));
  } else if (begin.freed_by != model_.classes[begin.kind].group || !own.timed) {
    until = whole(static_cast<double>(until) / static_cast<double>(std::max<std::uint64_t>(1, own.ticks)) *
                  static_cast<double>(by.clock));
  }
  const std::uint64_t next = (by.timed ? by.done : rank_) + (&by == &own || !by.timed ? 1 : 0);
  return {std::min(std::max(next, until), std::max(by.clock, next)), briefs_.size()};
}

void WindowsSource::begin(const Begin& begin, bool may_wait) {
  ClassWindow& c = classes_[begin.kind];
  Held from;
  bool resized = false;
  if (begin.from != kNoClass) {
    resized = take_victim(begin.from, from);
    if (!resized && may_wait) {
      late_.push_back(begin);
      return;
    }
    if (resized) {
      count(model_.classes[begin.kind].group, -static_cast<std::int64_t>(from.size));
    }
  } else if (!c.gifts.empty()) {
    const std::size_t place = c.gifts.front();
    c.gifts.pop_front();
    from = {script_objects_[place], model_.script[place].size, model_.script[place].end_thread, true};
    resized = true;
  }
  Event event;
  event.size =
      begin.length == kLong ? drawers_[begin.kind].long_size(c.long_mean) : drawers_[begin.kind].brief_size();
  Held held{0, event.size, 0, true};
  if (resized) {
    event.kind = Kind::kRealloc;
    event.object = from.object;
    const auto& threads = model_.classes[begin.kind].threads;
    const bool own =
        std::any_of(threads.begin(), threads.end(), [&](const auto& t) { return t.first == from.thread; });
    held.thread = own ? from.thread : pick_thread(begin.kind);
  } else {
    drawers_[begin.kind].set_kind(event);
    event.object = objects_++;
    held.thread = pick_thread(begin.kind);
  }
  held.object = event.object;
  const std::uint32_t group = model_.classes[begin.kind].group;
  count(group, static_cast<std::int64_t>(event.size));
  emit(event, held.thread);
  if (begin.length == kLong) {
    cohorts_[begin.kind].add(held);
    return;
  }
  const Due due = due_of(begin);
  briefs_.push_back({held, begin.kind, false});
  actors_[begin.freed_by].due.push(due);
  if (c.resizes > 0) {
    c.due.push(due);
  }
}

// The next of the script; false where it wants to be a realloc of something that is not there any more.
bool WindowsSource::begin_scripted(std::size_t place) {
  using Way = Scripted::Begin;
  const Scripted& s = model_.script[place];
  Event event;
  event.size = s.size;
  Held from;
  bool resized = false;
  if (s.begin == Way::kFromScript) {
    from.object = script_objects_[s.begin_with];
    resized = from.object != kNever && model_.script[s.begin_with].end == Scripted::End::kIntoScript &&
              model_.script[s.begin_with].end_with == place;
    if (resized) {
      script_objects_[s.begin_with] = kNever;  // its block is this one's now
    }
  } else if (s.begin == Way::kFromClass) {
    resized = take_victim(static_cast<std::uint32_t>(s.begin_with), from);
    if (resized) {
      count(group_of(s.thread), -static_cast<std::int64_t>(from.size));
    }
  }
  if (resized) {
    event.kind = Kind::kRealloc;
    event.object = from.object;
  } else {
    event.kind = s.begin == Way::kCalloc    ? Kind::kCalloc
                 : s.begin == Way::kAligned ? Kind::kAligned
                                            : Kind::kMalloc;
    event.alignment = s.begin == Way::kAligned ? s.begin_with : 0;
    event.object = objects_++;
  }
  script_objects_[place] = event.object;
  emit(event, s.thread);
  if (s.end == Scripted::End::kFree || s.end == Scripted::End::kIntoClass) {
    script_ends_.push({s.tick + 1 + s.length, place});
  }
  return resized;
}

void WindowsSource::end_script(std::size_t place) {
  const Scripted& s = model_.script[place];
  if (s.end == Scripted::End::kIntoClass) {
    classes_[s.end_with].gifts.push_back(place);
    return;
  }
  Event event;
  event.kind = Kind::kFree;
  event.object = script_objects_[place];
  event.touched = s.touched == kNever ? trace::kUnknown : s.touched;
  script_objects_[place] = kNever;
  emit(event, s.end_thread);
}

}  // namespace heapwright::model
