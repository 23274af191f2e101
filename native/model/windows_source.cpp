#include "windows_source.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "statistics.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

WindowsSource::WindowsSource(Model model, std::uint64_t seed)
    : model_(std::move(model)),
      rng_(seed * 2 + 1),
      threads_(model_.threads, rng_),
      live_(model_.classes),
      script_(model_.script),
      events_(model_.threads) {
  header_.synthetic = true;
  header_.allocator = "none: made from a model";
  for (const SizeClass& c : model_.classes) {
    drawers_.emplace_back(c);
  }
}

bool WindowsSource::next(Event& event) {
  while (!events_.take(event)) {
    if (window_ < model_.windows.size()) {
      run_window(model_.windows[window_]);
    } else if (!finished_) {
      finished_ = true;
      finish();
    } else {
      return false;
    }
  }
  return true;
}

void WindowsSource::run_window(Window& window) {
  start_window(window);
  Turns turns(groups_.ticks(), window.turns, last_turn_);
  for (std::uint64_t rank = 0; rank < ticks_ || turns.left() > 0; ++rank) {
    run_tick(rank, turns);
  }
  last_turn_ = turns.last();
  end_window();
  ++window_;
}

// Schedules a window and prepares the parts for it.
void WindowsSource::start_window(Window& window) {
  spread_lengths(window, model_.classes, model_.stretch);
  schedule_ = schedule_window(window, model_.classes, model_.stretch, rng_);
  ticks_ = window.ticks;
  rank_ = 0;
  events_.start_window(static_cast<double>(window.nanoseconds));
  live_.start_window(window);
  groups_.start(window, schedule_);
  for (const GroupSchedule& group : schedule_) {
    for (const ScheduledBegin& begin : group.begins) {
      if (begin.from != kNoClass) {
        live_.expect_realloc(begin.from);
      }
    }
  }
  script_.each_before(tick_ + ticks_, [this](const Scripted& entry) {
    if (entry.begin == Scripted::Begin::kFromClass) {
      live_.expect_realloc(static_cast<std::uint32_t>(entry.begin_with));
    }
  });
  for (const GroupSchedule& group : schedule_) {
    for (const ScheduledEnd& end : group.ends) {
      const auto clock = static_cast<double>(groups_[model_.classes[end.size_class].group].clock);
      live_.expect_old_end(end.size_class, static_cast<std::uint64_t>(static_cast<double>(end.at) * clock));
    }
  }
  for (; thread_end_at_ < model_.ends.size() && model_.ends[thread_end_at_].window == window_;
       ++thread_end_at_) {
    const ThreadEnd& end = model_.ends[thread_end_at_];
    groups_[group_of(end.thread)].thread_ends.push_back(end);
  }
}

// Runs one tick: ends the lifetimes that are over, and begins one lifetime, of the script or of the
// group whose turn it is.
void WindowsSource::run_tick(std::uint64_t rank, Turns& turns) {
  rank_ = rank;
  events_.set_progress(ticks_ == 0 ? 0
                                   : std::min(1.0, static_cast<double>(rank) / static_cast<double>(ticks_)));
  run_script_ends(rank);
  for (const std::uint32_t group : groups_.untimed()) {
    run_ends(group, rank, Until::kTick);
  }
  if (const auto scripted = script_.next_begin(tick_ + rank)) {
    begin_scripted(*scripted);
  } else if (turns.left() > 0) {
    const std::uint32_t group = turns.next(rng_);
    GroupState& state = groups_[group];
    if (state.timed) {
      run_ends(group, state.done, Until::kTick);
    }
    end_threads(state, false);
    begin(schedule_[group].begins[state.done], true);
    ++state.done;
  }
  if (!waiting_.empty()) {
    const ScheduledBegin again = waiting_.front();
    waiting_.pop_front();
    begin(again, true);
  }
}

// Ends the lifetimes of the script that end before the tick `rank` of the window.
void WindowsSource::run_script_ends(std::uint64_t rank) {
  while (script_.next_end() != kNever) {
    const std::uint64_t tick = std::max(script_.next_end(), tick_) - tick_;
    // An end at the border of two windows belongs to the later one.
    if (tick > rank || tick >= std::max<std::uint64_t>(ticks_, 1)) {
      return;
    }
    end_scripted(script_.take_end());
  }
}

// Ends the lifetimes that a group ends before the tick `now` of its clock. Within the window it
// ends fewer at the lower bound of live bytes, and more above the upper one.
void WindowsSource::run_ends(std::uint32_t group, std::uint64_t now, Until until) {
  GroupState& state = groups_[group];
  const std::vector<ScheduledEnd>& olds = schedule_[group].ends;
  while (true) {
    const std::uint64_t brief = state.due.empty() ? kNever : state.due.top().rank;
    const std::uint64_t old = state.old_at == olds.size()
                                  ? kNever
                                  : static_cast<std::uint64_t>(static_cast<double>(olds[state.old_at].at) *
                                                               static_cast<double>(state.clock));
    const std::uint64_t first = std::min(brief, old);
    if (first == kNever) {
      return;
    }
    const std::uint32_t c =
        first == brief ? live_.class_of_brief(state.due.top().brief) : olds[state.old_at].size_class;
    if (until == Until::kTick) {
      // An end of a class whose ends are reserved for reallocs frees nothing, so it would not lower
      // the live bytes.
      const bool early = groups_.too_high(group) && !live_.ends_are_reserved(c);
      if (first > now ? !early : groups_.too_low(group)) {
        return;
      }
    }
    std::optional<LiveBlock> ended;
    if (first == brief) {
      const std::size_t index = state.due.top().brief;
      state.due.pop();
      ended = live_.end_brief(index);
    } else {
      ++state.old_at;
      if (ticks_ == 0) {  // time goes on with the ends, because there are no ticks
        const double progress = static_cast<double>(state.old_at) / static_cast<double>(olds.size());
        events_.set_progress(std::max(events_.progress(), progress));
      }
      ended = live_.end_old(c, group != model_.classes[c].group, rng_);
    }
    if (ended) {
      end_lifetime(c, *ended, group);
    }
  }
}

// Makes the starts and ends of lifetimes that the window still owes.
void WindowsSource::end_window() {
  if (ticks_ > 0) {
    events_.set_progress(1);
  }
  for (; !waiting_.empty(); waiting_.pop_front()) {
    begin(waiting_.front(), false);
  }
  run_script_ends(kNever - 1);
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    run_ends(group, kNever - 1, Until::kWindowEnds);
  }
  for (std::uint32_t c = 0; c < model_.classes.size(); ++c) {
    for (const LiveBlock& block : live_.waiting(c)) {
      free_block(c, block, model_.classes[c].group);
    }
    for (const std::size_t index : live_.offered(c)) {
      free_scripted(index);
    }
  }
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    end_threads(groups_[group], true);
  }
  tick_ += ticks_;
  events_.end_window();
}

// Begins a lifetime. If it is to begin by realloc and there is no block to take, it waits
// (`may_wait`) or begins by malloc.
void WindowsSource::begin(const ScheduledBegin& begin, bool may_wait) {
  const SizeClass& c = model_.classes[begin.size_class];
  std::optional<LiveBlock> from;
  if (begin.from != kNoClass) {
    from = live_.take_for_realloc(begin.from, rng_);
    if (!from && may_wait) {
      waiting_.push_back(begin);
      return;
    }
    if (from) {
      groups_.count(c.group, -static_cast<std::int64_t>(from->size));
    }
  } else if (const auto index = live_.take_scripted(begin.size_class)) {
    const Scripted& entry = model_.script[*index];
    from = {script_.object(*index), entry.size, entry.end_thread, true};
  }
  Drawer& drawer = drawers_[begin.size_class];
  Event event;
  event.size =
      begin.length == kLong ? drawer.long_size(live_.mean_long_size(begin.size_class)) : drawer.brief_size();
  LiveBlock block{0, event.size, 0, true};
  if (from) {
    event.kind = Kind::kRealloc;
    event.object = from->object;
    block.thread = threads_.beginner(c, from->thread);
  } else {
    drawer.set_kind(event);
    event.object = events_.new_object();
    block.thread = threads_.beginner(c);
  }
  block.object = event.object;
  groups_.count(c.group, static_cast<std::int64_t>(event.size));
  events_.add(event, block.thread);
  if (begin.length == kLong) {
    live_.add_long(begin.size_class, block);
    return;
  }
  const Due due{groups_.end_of(begin, c.group, rank_), live_.next_brief()};
  live_.add_brief(begin.size_class, block, due);
  groups_[begin.freed_by].due.push(due);
}

// Begins the next lifetime of the script; by malloc if it is to begin by realloc of a block that is
// not live any more.
void WindowsSource::begin_scripted(std::size_t index) {
  using Way = Scripted::Begin;
  const Scripted& entry = model_.script[index];
  std::optional<std::uint64_t> from;
  if (entry.begin == Way::kFromScript) {
    from = script_.take_predecessor(index);
  } else if (entry.begin == Way::kFromClass) {
    if (const auto block = live_.take_for_realloc(static_cast<std::uint32_t>(entry.begin_with), rng_)) {
      from = block->object;
      groups_.count(group_of(entry.thread), -static_cast<std::int64_t>(block->size));
    }
  }
  Event event;
  event.size = entry.size;
  if (from) {
    event.kind = Kind::kRealloc;
    event.object = *from;
  } else {
    event.kind = entry.begin == Way::kCalloc    ? Kind::kCalloc
                 : entry.begin == Way::kAligned ? Kind::kAligned
                                                : Kind::kMalloc;
    event.alignment = entry.begin == Way::kAligned ? entry.begin_with : 0;
    event.object = events_.new_object();
  }
  events_.add(event, entry.thread);
  script_.begun(event.object);
}

// Ends a lifetime of the script: frees the block, or offers it to a realloc of a class.
void WindowsSource::end_scripted(std::size_t index) {
  const Scripted& entry = model_.script[index];
  if (entry.end == Scripted::End::kIntoClass) {
    live_.offer_scripted(static_cast<std::uint32_t>(entry.end_with), index);
  } else {
    free_scripted(index);
  }
}

void WindowsSource::free_scripted(std::size_t index) {
  const Scripted& entry = model_.script[index];
  Event event;
  event.kind = Kind::kFree;
  event.object = script_.take(index);
  event.touched = entry.touched == kNever ? trace::kUnknown : entry.touched;
  events_.add(event, entry.end_thread);
}

// Ends a lifetime whose time is over: group `by` frees the block, or the block waits for a realloc.
void WindowsSource::end_lifetime(std::uint32_t c, const LiveBlock& block, std::uint32_t by) {
  if (live_.free_or_wait(c, block)) {
    free_block(c, block, by);
  }
}

void WindowsSource::free_block(std::uint32_t c, const LiveBlock& block, std::uint32_t by) {
  const bool sized = model_.sized_frees > 0 && rng_.below(1000) < model_.sized_frees;
  Event event;
  event.kind = sized ? Kind::kFreeSized : Kind::kFree;
  event.object = block.object;
  event.size = sized ? block.size : 0;
  event.touched = touched_bytes(c, block.size);
  groups_.count(by, -static_cast<std::int64_t>(block.size));
  events_.add(event, threads_.freer(model_.classes[c], block.thread, by));
}

std::uint64_t WindowsSource::touched_bytes(std::uint32_t c, std::uint64_t size) const {
  const std::uint64_t part = model_.classes[c].touched;
  return size < kLargeBlock || part == kNever ? trace::kUnknown : size / 1000 * part;
}

// Ends the threads of a group that end by now, or all that end in the window.
void WindowsSource::end_threads(GroupState& group, bool all) {
  for (; group.thread_end_at < group.thread_ends.size(); ++group.thread_end_at) {
    const ThreadEnd& end = group.thread_ends[group.thread_end_at];
    if (!all && 1000 * group.done < end.at * group.ticks) {
      return;
    }
    if (events_.can_end(end.thread)) {
      end_thread(end.thread);
    }
  }
}

void WindowsSource::end_thread(std::uint32_t thread) {
  live_.mark_for_other_groups(group_of(thread));
  events_.end_thread(thread);
}

// Writes the touched bytes of large blocks that are never freed, if known, and ends all threads but
// the first.
void WindowsSource::finish() {
  const std::uint32_t thread = events_.some_thread();
  const auto add_touched = [&](std::uint64_t object, std::uint64_t bytes) {
    if (bytes != trace::kUnknown) {
      Event event;
      event.kind = Kind::kTouched;
      event.object = object;
      event.touched = bytes;
      events_.add(event, thread);
    }
  };
  live_.each_long([&](std::uint32_t c, const LiveBlock& block) {
    add_touched(block.object, touched_bytes(c, block.size));
  });
  for (std::size_t index = 0; index < model_.script.size(); ++index) {
    const Scripted& entry = model_.script[index];
    if (entry.end == Scripted::End::kNeverFreed && script_.object(index) != kNever) {
      add_touched(script_.object(index), entry.touched == kNever ? trace::kUnknown : entry.touched);
    }
  }
  for (std::uint32_t each = 0; each < events_.threads(); ++each) {
    if (events_.can_end(each)) {
      end_thread(each);
    }
  }
}

}  // namespace heapwright::model
