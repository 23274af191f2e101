// The windows of a made-up trace, one after the other, and its end.
#include "synth.h"

#include <algorithm>

#include "windows_source.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

// All that ends before the tick `rank` of the window.
void WindowsSource::run_ends(std::uint64_t rank, const WindowPlan& plan) {
  while (true) {
    const auto at = [this](float part) {
      return static_cast<std::uint64_t>(static_cast<double>(part) * static_cast<double>(ticks_));
    };
    const std::uint64_t none = kNever;
    std::uint64_t script = none;
    if (!script_ends_.empty()) {
      const std::uint64_t tick = std::max(script_ends_.top().tick, tick_) - tick_;
      // What ends at the border of two windows belongs to the later one.
      script = tick < std::max<std::uint64_t>(ticks_, 1) ? tick : none;
    }
    const std::uint64_t brief = due_.empty() ? none : due_.top().rank;
    const std::uint64_t old = old_at_ == plan.ends.size() ? none : at(plan.ends[old_at_].at);
    const std::uint64_t first = std::min({script, brief, old});
    if (first > rank) {
      return;
    }
    if (first == script) {
      const std::size_t place = script_ends_.top().place;
      script_ends_.pop();
      end_script(place);
    } else if (first == brief) {
      Brief& ending = briefs_[due_.top().brief];
      due_.pop();
      if (!ending.ended) {
        ending.ended = true;
        release(ending.kind, ending.held);
      }
    } else {
      const std::uint32_t kind = plan.ends[old_at_++].kind;
      if (ticks_ == 0) {
        part_ = static_cast<double>(old_at_) / static_cast<double>(plan.ends.size());
      }
      ClassWindow& c = classes_[kind];
      if (c.olds_taken > 0) {  // a realloc took it before its time
        --c.olds_taken;
        c.olds.pop_front();
      } else if (cohorts_[kind].alive() > 0) {
        if (!c.olds.empty()) {
          c.olds.pop_front();
        }
        release(kind, cohorts_[kind].take(c.old, model_.classes[kind], dice_));
      }
    }
  }
}

void WindowsSource::run_window(Window& window) {
  spread_lengths(window, model_.classes, model_.stretch);
  const WindowPlan plan = plan_window(window, model_.classes, model_.stretch, dice_);
  ticks_ = window.ticks;
  length_ = static_cast<double>(window.nanoseconds);
  part_ = 0;
  classes_.assign(model_.classes.size(), {});
  briefs_.clear();
  due_ = {};
  old_at_ = 0;
  for (std::size_t c = 0; c < classes_.size(); ++c) {
    const Row& row = window.rows[c];
    classes_[c].ends = row.begins() - row.long_count + row.old_ends();
    classes_[c].old = row.old;
    classes_[c].long_mean =
        row.long_count == 0 ? 0 : static_cast<double>(row.long_bytes) / static_cast<double>(row.long_count);
    cohorts_[c].start_window();
  }
  for (const Begin& begin : plan.begins) {
    if (begin.from != kNoClass) {
      ++classes_[begin.from].resizes;
    }
  }
  for (std::size_t place = script_at_;
       place < model_.script.size() && model_.script[place].tick < tick_ + ticks_; ++place) {
    if (model_.script[place].begin == Scripted::Begin::kFromClass) {
      ++classes_[model_.script[place].begin_with].resizes;
    }
  }
  for (const OldEnd& end : plan.ends) {
    if (ClassWindow& c = classes_[end.kind]; c.resizes > 0) {
      c.olds.push_back(static_cast<std::uint64_t>(static_cast<double>(end.at) * static_cast<double>(ticks_)));
    }
  }

  std::size_t next = 0;
  for (std::uint64_t rank = 0; rank < ticks_ || next < plan.begins.size(); ++rank) {
    part_ = ticks_ == 0 ? 0 : std::min(1.0, static_cast<double>(rank) / static_cast<double>(ticks_));
    run_ends(rank, plan);
    if (script_at_ < model_.script.size() && model_.script[script_at_].tick <= tick_ + rank) {
      begin_scripted(script_at_++);
    } else if (next < plan.begins.size()) {
      begin(plan.begins[next++], rank, true);
    }
    if (!late_.empty()) {
      const Begin again = late_.front();
      late_.pop_front();
      begin(again, rank, true);
    }
  }
  part_ = ticks_ == 0 ? part_ : 1;
  for (; !late_.empty(); late_.pop_front()) {
    begin(late_.front(), ticks_, false);
  }
  run_ends(kNever - 1, plan);
  for (std::uint32_t c = 0; c < classes_.size(); ++c) {
    for (const Held& held : classes_[c].waiting) {
      free_one(held, c);
    }
    for (const std::size_t place : classes_[c].gifts) {
      model_.script[place].end = Scripted::End::kFree;
      end_script(place);
    }
  }
  tick_ += ticks_;
  since_ += length_;
  length_ = 0;
}

// What is known of large blocks that stay, and the ends of all threads but the first.
void WindowsSource::finish() {
  const auto touched = [this](std::uint64_t object, std::uint64_t bytes, std::uint32_t slot) {
    if (bytes != trace::kUnknown) {
      Event event;
      event.kind = Kind::kTouched;
      event.object = object;
      event.touched = bytes;
      emit(event, slot);
    }
  };
  for (std::uint32_t c = 0; c < cohorts_.size(); ++c) {
    cohorts_[c].each([&](const Held& held) { touched(held.object, touched_of(c, held.size), held.thread); });
  }
  for (std::size_t place = 0; place < model_.script.size(); ++place) {
    if (const Scripted& s = model_.script[place];
        s.end == Scripted::End::kStays && script_objects_[place] != kNever) {
      touched(script_objects_[place], s.touched == kNever ? trace::kUnknown : s.touched, s.thread);
    }
  }
  for (std::int64_t thread = 1; thread < threads_; ++thread) {
    Event end;
    end.kind = Kind::kThreadEnd;
    end.thread = static_cast<std::uint32_t>(thread);
    end.time = static_cast<std::uint64_t>(since_);
    ready_.push_back(end);
  }
}

std::unique_ptr<trace::EventSource> make_windows_source(Model model, std::uint64_t seed) {
  return std::make_unique<WindowsSource>(std::move(model), seed);
}

std::unique_ptr<trace::EventSource> make_synthetic(Plan plan) {
  if (plan.rand_malloc) {
    return make_rand_malloc_source(std::move(plan.means), plan.nanoseconds, plan.seed);
  }
  return make_windows_source(std::move(plan.model), plan.seed);
}

}  // namespace heapwright::model
