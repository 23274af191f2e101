// The windows of a made-up trace, one after the other, and its end.
#include "synth.h"

#include <algorithm>

#include "windows_source.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

// What of the script ends before the tick `rank` of the window.
void WindowsSource::run_script_ends(std::uint64_t rank) {
  while (!script_ends_.empty()) {
    const std::uint64_t tick = std::max(script_ends_.top().tick, tick_) - tick_;
    // What ends at the border of two windows belongs to the later one.
    if (tick > rank || tick >= std::max<std::uint64_t>(ticks_, 1)) {
      return;
    }
    const std::size_t place = script_ends_.top().place;
    script_ends_.pop();
    end_script(place);
  }
}

// What a group ends before the tick `now` of its clock; less where it must not end more, and more where it has made too much.
void WindowsSource::run_ends(std::uint32_t group, std::uint64_t now, Until until) {
  Actor& actor = actors_[group];
  const std::vector<OldEnd>& ends = plan_[group].ends;
  while (true) {
    const std::uint64_t brief = actor.due.empty() ? kNever : actor.due.top().rank;
    const std::uint64_t old = actor.old_at == ends.size()
                                  ? kNever
                                  : static_cast<std::uint64_t>(static_cast<double>(ends[actor.old_at].at) *
                                                               static_cast<double>(actor.clock));
    const std::uint64_t first = std::min(brief, old);
    if (first == kNever) {
      return;
    }
    const std::uint32_t kind = first == brief ? briefs_[actor.due.top().brief].kind : ends[actor.old_at].kind;
    ClassWindow& c = classes_[kind];
    if (until == Until::kTick) {
      // What reallocs wait for does not become less by ending.
      const bool too_much = (actor.too_high() || all_.too_high()) && (c.resizes == 0 || c.ends > c.resizes);
      if (first > now ? !too_much : (actor.too_low() || all_.too_low())) {
        return;
      }
    }
    if (first == brief) {
      Brief& ending = briefs_[actor.due.top().brief];
      actor.due.pop();
      if (!ending.ended) {
        ending.ended = true;
        release(kind, ending.held, group);
      }
      continue;
    }
    ++actor.old_at;
    if (ticks_ == 0) {
      part_ = std::max(part_, static_cast<double>(actor.old_at) / static_cast<double>(ends.size()));
    }
    if (c.olds_taken > 0) {  // a realloc took it before its time
      --c.olds_taken;
      c.olds.pop_front();
    } else if (cohorts_[kind].alive() > 0) {
      if (!c.olds.empty()) {
        c.olds.pop_front();
      }
      release(kind,
              cohorts_[kind].take(c.old, model_.classes[kind], group != model_.classes[kind].group, rng_),
              group);
    }
  }
}

// Sets down what is to be done in a window.
void WindowsSource::enter(Window& window) {
  spread_lengths(window, model_.classes, model_.stretch);
  plan_ = plan_window(window, model_.classes, model_.stretch, rng_);
  ticks_ = window.ticks;
  length_ = static_cast<double>(window.nanoseconds);
  part_ = 0;
  rank_ = 0;
  classes_.assign(model_.classes.size(), {});
  briefs_.clear();
  untimed_.clear();
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const Row& row = window.rows[c];
    classes_[c].ends = row.begins() - row.long_count + row.old_ends();
    classes_[c].old = row.old;
    classes_[c].long_mean =
        row.long_count == 0 ? 0 : static_cast<double>(row.long_bytes) / static_cast<double>(row.long_count);
    cohorts_[c].start_window();
  }
  const Part& all = window.parts[kGroups];
  constexpr std::int64_t kUnbounded = std::int64_t{1} << 62;
  all_ = {};
  all_.above = all == Part{} ? kUnbounded : static_cast<std::int64_t>(all.above);
  all_.below = all == Part{} ? kUnbounded : static_cast<std::int64_t>(all.below);
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    Actor& actor = actors_[group] = {};
    actor.ticks = plan_[group].begins.size();
    actor.timed = plan_[group].timed;
    actor.clock = actor.timed ? actor.ticks : ticks_;
    actor.above = static_cast<std::int64_t>(window.parts[group].above);
    actor.below = static_cast<std::int64_t>(window.parts[group].below);
    if (!actor.timed) {
      untimed_.push_back(group);
    }
    for (const Begin& begin : plan_[group].begins) {
      if (begin.from != kNoClass) {
        ++classes_[begin.from].resizes;
      }
    }
  }
  for (; thread_end_at_ < model_.ends.size() && model_.ends[thread_end_at_].window == window_;
       ++thread_end_at_) {
    const ThreadEnd& end = model_.ends[thread_end_at_];
    actors_[group_of(end.thread)].thread_ends.push_back(end);
  }
  for (std::size_t place = script_at_;
       place < model_.script.size() && model_.script[place].tick < tick_ + ticks_; ++place) {
    if (model_.script[place].begin == Scripted::Begin::kFromClass) {
      ++classes_[model_.script[place].begin_with].resizes;
    }
  }
  for (const GroupPlan& plan : plan_) {
    for (const OldEnd& end : plan.ends) {
      if (ClassWindow& c = classes_[end.kind]; c.resizes > 0) {
        const auto ticks = static_cast<double>(actors_[model_.classes[end.kind].group].clock);
        c.olds.push_back(static_cast<std::uint64_t>(static_cast<double>(end.at) * ticks));
      }
    }
  }
}

void WindowsSource::run_tick(std::uint64_t rank, Turns& turns) {
  rank_ = rank;
  part_ = ticks_ == 0 ? 0 : std::min(1.0, static_cast<double>(rank) / static_cast<double>(ticks_));
  run_script_ends(rank);
  for (const std::uint32_t group : untimed_) {
    run_ends(group, rank, Until::kTick);
  }
  if (script_at_ < model_.script.size() && model_.script[script_at_].tick <= tick_ + rank) {
    begin_scripted(script_at_++);
  } else if (turns.left() > 0) {
    const std::uint32_t group = turns.next(rng_);
    Actor& actor = actors_[group];
    if (actor.timed) {
      run_ends(group, actor.done, Until::kTick);
    }
    end_threads(actor, false);
    begin(plan_[group].begins[actor.done], true);
    ++actor.done;
  }
  if (!late_.empty()) {
    const Begin again = late_.front();
    late_.pop_front();
    begin(again, true);
  }
}

void WindowsSource::run_window(Window& window) {
  enter(window);
  std::array<std::uint64_t, kGroups> ticks{};
  std::transform(actors_.begin(), actors_.end(), ticks.begin(),
                 [](const Actor& actor) { return actor.ticks; });
  Turns turns(ticks, window.turns, turn_);
  for (std::uint64_t rank = 0; rank < ticks_ || turns.left() > 0; ++rank) {
    run_tick(rank, turns);
  }
  turn_ = turns.last();
  leave();
  ++window_;
}

// What is left to do at the end of a window.
void WindowsSource::leave() {
  part_ = ticks_ == 0 ? part_ : 1;
  for (; !late_.empty(); late_.pop_front()) {
    begin(late_.front(), false);
  }
  run_script_ends(kNever - 1);
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    run_ends(group, kNever - 1, Until::kWindowEnds);
  }
  for (std::uint32_t c = 0; c < classes_.size(); ++c) {
    for (const Held& held : classes_[c].waiting) {
      free_one(held, c, model_.classes[c].group);
    }
    for (const std::size_t place : classes_[c].gifts) {
      model_.script[place].end = Scripted::End::kFree;
      end_script(place);
    }
  }
  for (Actor& actor : actors_) {
    end_threads(actor, true);
  }
  tick_ += ticks_;
  since_ += length_;
  length_ = 0;
}

// Ends the threads whose time has come.
void WindowsSource::end_threads(Actor& actor, bool all) {
  for (; actor.end_at < actor.thread_ends.size(); ++actor.end_at) {
    const ThreadEnd& end = actor.thread_ends[actor.end_at];
    if (!all && 1000 * actor.done < end.at * actor.ticks) {
      return;
    }
    if (by_slot_[end.thread] > 1) {
      end_thread(end.thread);
    }
  }
}

void WindowsSource::end_thread(std::uint32_t slot) {
  for (std::size_t c = 0; c < cohorts_.size(); ++c) {
    if (model_.classes[c].group == group_of(slot)) {
      cohorts_[c].leave_to_others();
    }
  }
  Event end;
  end.kind = Kind::kThreadEnd;
  end.thread = static_cast<std::uint32_t>(by_slot_[slot] - 1);
  end.time = static_cast<std::uint64_t>(since_ + length_ * part_);
  by_slot_[slot] = 0;
  ready_.push_back(end);
}

// What is known of large blocks that stay, and the ends of all threads but the first.
void WindowsSource::finish() {
  std::uint32_t there = 0;  // some thread that has not ended
  while (there + 1 < by_slot_.size() && by_slot_[there] == 0) {
    ++there;
  }
  const auto touched = [&](std::uint64_t object, std::uint64_t bytes) {
    if (bytes != trace::kUnknown) {
      Event event;
      event.kind = Kind::kTouched;
      event.object = object;
      event.touched = bytes;
      emit(event, there);
    }
  };
  for (std::uint32_t c = 0; c < cohorts_.size(); ++c) {
    cohorts_[c].each([&](const Held& held) { touched(held.object, touched_of(c, held.size)); });
  }
  for (std::size_t place = 0; place < model_.script.size(); ++place) {
    if (const Scripted& s = model_.script[place];
        s.end == Scripted::End::kStays && script_objects_[place] != kNever) {
      touched(script_objects_[place], s.touched == kNever ? trace::kUnknown : s.touched);
    }
  }
  for (std::uint32_t slot = 0; slot < by_slot_.size(); ++slot) {
    if (by_slot_[slot] > 1) {
      end_thread(slot);
    }
  }
}

std::unique_ptr<trace::EventSource> make_windows_source(Model model, std::uint64_t seed) {
  return std::make_unique<WindowsSource>(std::move(model), seed);
}

std::unique_ptr<trace::EventSource> make_synthetic(AnyModel model, std::uint64_t seed) {
  if (auto* const simple = std::get_if<RandMallocModel>(&model)) {
    return make_rand_malloc_source(std::move(*simple), seed);
  }
  return make_windows_source(std::get<Model>(std::move(model)), seed);
}

}  // namespace heapwright::model
