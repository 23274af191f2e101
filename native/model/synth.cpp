// Carries window plans out: who is resized, who is freed and by which thread, and the script in between.
//
// In each window a class has as many ends as the model counted. Those that a realloc needs are set aside: once as many ends are
// left as reallocs from the class are still to come, stays that are due wait for theirs (`waiting`). So a realloc finds a stay
// to take, and the number of live stays of each class is exact at the window's end.
#include "synth.h"

#include <algorithm>
#include <deque>
#include <queue>

#include "draw.h"
#include "statistics.h"
#include "window_plan.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

namespace {

// A brief stay that has begun in this window.
struct Brief {
  Held held;
  std::uint32_t kind = 0;
  bool ended = false;
};

struct Due {
  std::uint64_t rank = 0;  // tick within the window before which it ends
  std::size_t brief = 0;
  bool operator>(const Due& other) const {
    return rank != other.rank ? rank > other.rank : brief > other.brief;
  }
};
using DueQueue = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

// What a class still has to do in this window.
struct ClassWindow {
  std::uint64_t ends = 0;        // stays to end, by free or realloc
  std::uint64_t resizes = 0;     // of these by realloc
  std::uint64_t olds_taken = 0;  // ends of old stays that a realloc took before their time
  double long_mean = 0;          // bytes
  std::array<std::uint64_t, kAgeBins> old{};
  std::vector<Held> waiting;
  DueQueue due;                    // only where resizes > 0
  std::deque<std::uint64_t> olds;  // ranks of old ends, only where resizes > 0
  std::deque<std::size_t> gifts;   // places of scripted stays that shrink into this class
};

class WindowsSource : public trace::EventSource {
 public:
  WindowsSource(Model model, std::uint64_t seed)
      : model_(std::move(model)),
        dice_(seed * 2 + 1),
        cohorts_(model_.classes.size()),
        by_slot_(model_.threads) {
    header_.synthetic = true;
    header_.allocator = "none: made from a model";
    for (const SizeClass& c : model_.classes) {
      drawers_.emplace_back(c);
    }
    script_objects_.resize(model_.script.size());
  }

  const trace::Header& header() const override { return header_; }
  trace::Loss loss() const override { return {}; }
  bool next(Event& event) override {
    while (at_ == ready_.size()) {
      ready_.clear();
      at_ = 0;
      if (window_ < model_.windows.size()) {
        run_window(model_.windows[window_++]);
      } else if (!finished_) {
        finished_ = true;
        finish();
      } else {
        return false;
      }
    }
    event = ready_[at_++];
    return true;
  }

 private:
  struct ScriptEnd {
    std::uint64_t tick = 0;
    std::size_t place = 0;
    bool operator>(const ScriptEnd& other) const {
      return tick != other.tick ? tick > other.tick : place > other.place;
    }
  };

  void run_window(Window& window);
  void run_ends(std::uint64_t rank, const WindowPlan& plan);
  void begin(const Begin& begin, std::uint64_t rank, bool may_wait);
  bool begin_scripted(std::size_t place);
  void end_script(std::size_t place);
  bool take_victim(std::uint32_t kind, Held& held);
  void release(std::uint32_t kind, const Held& held);
  void free_one(const Held& held, std::uint32_t owner_kind);
  void finish();
  void emit(Event event, std::uint32_t slot);
  std::uint32_t pick_thread(std::uint32_t kind);
  std::uint32_t freeing_thread(std::uint32_t kind, std::uint32_t made);
  std::uint64_t touched_of(std::uint32_t kind, std::uint64_t size) const {
    const std::uint64_t part = model_.classes[kind].touched;
    return size < kLargeBlock || part == kNever ? trace::kUnknown : size / 1000 * part;
  }

  Model model_;
  trace::Header header_;
  Dice dice_;
  std::vector<Cohort> cohorts_;
  std::vector<Drawer> drawers_;
  std::vector<std::uint64_t> script_objects_;
  std::priority_queue<ScriptEnd, std::vector<ScriptEnd>, std::greater<>> script_ends_;
  std::vector<std::int64_t> by_slot_;  // model thread → 1 + number in the trace; 0: not seen yet
  std::int64_t threads_ = 0;
  std::uint64_t objects_ = 0;
  std::size_t script_at_ = 0;
  std::size_t window_ = 0;
  std::uint64_t tick_ = 0;  // at which the window begins
  double since_ = 0;        // nanoseconds, when it begins
  bool finished_ = false;

  // Of the window under way.
  std::uint64_t ticks_ = 0;
  double length_ = 0;  // nanoseconds
  double part_ = 0;    // of it that is over
  std::vector<ClassWindow> classes_;
  std::vector<Brief> briefs_;
  DueQueue due_;
  std::size_t old_at_ = 0;
  std::deque<Begin> late_;  // reallocs that found nothing to take

  std::vector<Event> ready_;
  std::size_t at_ = 0;
};

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

std::uint32_t WindowsSource::pick_thread(std::uint32_t kind) {
  const auto& threads = model_.classes[kind].threads;
  return threads.size() == 1 ? threads.front().first : drawn(threads, dice_.uniform() * sum_of(threads));
}

std::uint32_t WindowsSource::freeing_thread(std::uint32_t kind, std::uint32_t made) {
  const SizeClass& c = model_.classes[kind];
  if (c.freed_by.empty()) {
    return made;
  }
  const double draw = dice_.uniform() * (sum_of(c.freed_by) + static_cast<double>(c.freed_own));
  return draw < static_cast<double>(c.freed_own) ? made
                                                 : drawn(c.freed_by, draw - static_cast<double>(c.freed_own));
}

void WindowsSource::free_one(const Held& held, std::uint32_t kind) {
  Event event;
  event.kind =
      model_.sized_frees > 0 && dice_.below(1000) < model_.sized_frees ? Kind::kFreeSized : Kind::kFree;
  event.object = held.object;
  event.size = event.kind == Kind::kFreeSized ? held.size : 0;
  event.touched = touched_of(kind, held.size);
  emit(event, freeing_thread(kind, held.thread));
}

// A stay whose time has come is freed, or waits for a realloc.
void WindowsSource::release(std::uint32_t kind, const Held& held) {
  ClassWindow& c = classes_[kind];
  if (c.resizes > 0 && c.ends <= c.resizes) {
    c.waiting.push_back(held);
    return;
  }
  c.ends -= c.ends > 0 ? 1 : 0;
  free_one(held, kind);
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
    held = cohorts_[kind].take(c.old, model_.classes[kind], dice_);
  } else {
    return false;
  }
  c.ends -= c.ends > 0 ? 1 : 0;
  c.resizes -= c.resizes > 0 ? 1 : 0;
  return true;
}

void WindowsSource::begin(const Begin& begin, std::uint64_t rank, bool may_wait) {
  ClassWindow& c = classes_[begin.kind];
  Held from;
  bool resized = false;
  if (begin.from != kNoClass) {
    resized = take_victim(begin.from, from);
    if (!resized && may_wait) {
      late_.push_back(begin);
      return;
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
  emit(event, held.thread);
  if (begin.length == kLong) {
    cohorts_[begin.kind].add(held);
    return;
  }
  const std::uint64_t until = begin.until > 0
                                  ? whole(static_cast<double>(begin.until) * static_cast<double>(ticks_))
                                  : rank + 1 + begin.length;
  const Due due{std::min(std::max(rank + 1, until), std::max(ticks_, rank + 1)), briefs_.size()};
  briefs_.push_back({held, begin.kind, false});
  due_.push(due);
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

}  // namespace

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
