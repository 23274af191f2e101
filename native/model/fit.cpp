#include "fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "gauges.h"
#include "layout.h"
#include "merge.h"
#include "trace/live_table.h"
#include "trace/sample.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

namespace {

struct Lifetime {
  std::uint64_t tick = 0;   // at which it began, of all ticks
  std::uint64_t clock = 0;  // at which it began, by the clock of its group
  std::uint64_t size = 0;
  std::uint64_t largest = 0;  // bytes of its block so far
  std::uint64_t rank = 0;     // index among the lifetimes of its class
  std::uint32_t window = 0;
  std::uint32_t kind = 0;  // class, or index in the script
  std::uint32_t thread = 0;
  bool scripted = false;
};

struct ClassState {
  std::uint64_t begun = 0;
  std::uint64_t outlived = 0;  // lifetimes that outlived their window
  std::uint64_t last_end = 0;  // rank of the older lifetime that ended last
  std::uint64_t old_ends = 0;
  std::uint64_t in_order = 0;
  std::uint64_t in_reverse = 0;
  std::uint64_t large = 0;
  std::uint64_t large_touched = 0;
  std::array<std::uint64_t, kLifeBins> brief{};
  std::array<double, kLifeBins> lengths{};  // sums of lengths in ticks, by bin
};

// Counts the events of the second pass into a model.
class Counter {
 public:
  Counter(Layout& layout, const FitOptions& options, Model& model)
      : layout_(layout), options_(options), model_(model), known_(layout.classes().size() * kGroups, -1) {
    model.script_from = layout.script_from();
    for (const TickRange& range : layout.ranges()) {
      Window& window = model.windows.emplace_back();
      window.ticks = range.end - range.begin;
    }
  }

  void add(const Event& event);
  void finish();

 private:
  std::uint32_t class_for(std::uint64_t size, std::uint32_t thread);
  static ClassActivity& row_of(Window& window, std::uint32_t kind) {
    if (kind >= window.rows.size()) {
      window.rows.resize(kind + 1);
    }
    return window.rows[kind];
  }
  void sort_classes();
  void begin(const Event& event, std::optional<Lifetime> from);
  void end(const Lifetime& lifetime, std::uint32_t thread, bool freed);
  void touched(const Lifetime& lifetime, std::uint64_t bytes);
  void enter_tick();
  void enter_gap();
  void to_window(std::uint32_t window);
  void end_thread(std::uint32_t thread);
  void leave_window();
  Gauge& gauge(std::uint32_t thread) { return gauges_[group_of(thread)]; }

  Layout& layout_;
  const FitOptions& options_;
  Model& model_;
  std::vector<std::int64_t> known_;  // class of the layout and group → class of the model; -1 for none yet
  std::vector<ClassState> states_;
  trace::LiveTable<Lifetime> lifetimes_;
  ThreadNumbers numbers_;
  std::array<Gauge, kGroups> gauges_;
  Balance all_;              // of all groups together
  std::size_t ends_at_ = 0;  // first of the thread ends of the current window
  Portions turns_;           // ticks of each turn
  std::uint64_t turn_ = 0;
  std::uint32_t has_turn_ = 0;  // group of the last tick
  std::uint64_t ticks_ = 0;
  std::uint64_t time_ = 0;
  std::uint64_t window_since_ = 0;  // nanoseconds, start of the current window
  std::uint64_t frees_ = 0;
  std::uint64_t sized_ = 0;
  std::uint32_t window_ = 0;
};

void Counter::to_window(std::uint32_t window) {
  if (window == window_) {
    return;
  }
  leave_window();
  window_ = window;
}

void Counter::leave_window() {
  Window& left = model_.windows[window_];
  for (; ends_at_ < model_.ends.size(); ++ends_at_) {  // `at` holds ticks so far
    ThreadEnd& end = model_.ends[ends_at_];
    const std::uint64_t ticks = gauge(end.thread).ticks();
    end.at = ticks == 0 ? 1000 : 1000 * end.at / ticks;
  }
  std::uint32_t busy = 0;
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    left.parts[group] = gauges_[group].take(left.ticks);
    busy += left.parts[group] == GroupActivity{} ? 0 : 1;
  }
  GroupActivity all;
  all_.take(all);
  left.parts[kGroups] = busy > 1 ? all : GroupActivity{};
  left.turns = turns_.take();
  left.nanoseconds += time_ - window_since_;
  window_since_ = time_;
}

// Notes the end of a thread. The first thread never ends, because it is the first thread of the
// replay.
void Counter::end_thread(std::uint32_t thread) {
  const std::uint32_t place = numbers_.end(thread);
  if (place != ThreadNumbers::kNone && place != 0) {
    model_.ends.push_back({place, window_, gauge(place).ticks()});
  }
}

// Goes on to the window of the tick that begins now.
void Counter::enter_tick() {
  const auto& ranges = layout_.ranges();
  std::uint32_t window = window_;
  while (window + 1 < ranges.size() && ranges[window].end <= ticks_) {
    ++window;
  }
  to_window(window);
}

// Goes on to the window of frees between the last tick and the next one.
void Counter::enter_gap() {
  const auto& ranges = layout_.ranges();
  std::uint32_t window = window_;
  while (window + 1 < ranges.size() && ranges[window].end <= ticks_ &&
         (ranges[window].begin < ranges[window].end || ranges[window].begin < ticks_)) {
    ++window;
  }
  to_window(window);
}

void Counter::add(const Event& event) {
  ++model_.events;
  if (is_allocation(event.kind)) {
    ++model_.allocations;
    enter_tick();
    time_ = std::max(time_, event.time);
    begin(event, std::nullopt);
    gauge(numbers_.of(event.thread)).note_extremes();
    all_.note_extremes();
    return;
  }
  time_ = std::max(time_, event.time);
  if (event.kind == Kind::kThreadEnd) {
    end_thread(event.thread);
    return;
  }
  const Lifetime* known = is_free(event.kind) || event.kind == Kind::kRealloc || event.kind == Kind::kTouched
                              ? lifetimes_.find(event.object)
                              : nullptr;
  if (known == nullptr) {
    return;
  }
  const Lifetime lifetime = *known;
  if (event.touched != trace::kUnknown) {
    touched(lifetime, event.touched);
  }
  if (event.kind == Kind::kTouched) {
    return;
  }
  const std::uint32_t thread = numbers_.of(event.thread);
  if (event.kind == Kind::kRealloc) {
    enter_tick();
    end(lifetime, thread, false);
    lifetimes_.erase(event.object);
    begin(event, lifetime);
  } else {
    enter_gap();
    end(lifetime, thread, true);
    lifetimes_.erase(event.object);
    ++frees_;
    sized_ += event.kind == Kind::kFreeSized ? 1 : 0;
  }
  gauge(thread).note_extremes();
  all_.note_extremes();
}

// Returns the class of a size for a thread; adds the class if it is new.
std::uint32_t Counter::class_for(std::uint64_t size, std::uint32_t thread) {
  const std::uint32_t group = group_of(thread);
  const std::uint32_t shared = layout_.class_of(size);
  std::int64_t& known = known_[shared * kGroups + group];
  if (known < 0) {
    known = static_cast<std::int64_t>(model_.classes.size());
    model_.classes.push_back(layout_.classes()[shared]);
    model_.classes.back().group = group;
    states_.emplace_back();
  }
  return static_cast<std::uint32_t>(known);
}

void Counter::begin(const Event& event, std::optional<Lifetime> from) {
  Lifetime lifetime{.tick = ticks_,
                    .size = event.size,
                    .largest = event.size,
                    .window = window_,
                    .thread = numbers_.of(event.thread)};
  ++ticks_;
  lifetime.largest = std::max(lifetime.size, from ? from->largest : 0);
  Window& window = model_.windows[window_];
  if (event.size >= model_.script_from && model_.script.size() < options_.script) {
    lifetime.scripted = true;
    lifetime.kind = static_cast<std::uint32_t>(model_.script.size());
    Scripted& entry = model_.script.emplace_back();
    entry.tick = lifetime.tick;
    entry.size = event.size;
    entry.thread = entry.end_thread = lifetime.thread;
    if (from) {
      entry.begin = from->scripted ? Scripted::Begin::kFromScript : Scripted::Begin::kFromClass;
      entry.begin_with = from->kind;
    } else if (event.kind == Kind::kCalloc) {
      entry.begin = Scripted::Begin::kCalloc;
    } else if (event.kind == Kind::kAligned) {
      entry.begin = Scripted::Begin::kAligned;
      entry.begin_with = event.alignment;
    }
  } else {
    lifetime.kind = class_for(event.size, lifetime.thread);
    lifetime.rank = states_[lifetime.kind].begun++;
    SizeClass& c = model_.classes[lifetime.kind];
    count_thread(c.threads, lifetime.thread);
    add_variance(c, trace::chance(lifetime.largest, options_.sample), lifetime.size);
    // Assume that the lifetime outlives the window; end() corrects this if it does not.
    ClassActivity& row = row_of(window, lifetime.kind);
    ++row.long_count;
    row.long_bytes += lifetime.size;
    lifetime.clock = gauges_[c.group].clock();
    gauges_[c.group].begin(lifetime.size);
    all_.add(lifetime.size);
    turn_ += has_turn_ == c.group ? 0 : 1;
    has_turn_ = c.group;
    turns_.add(0, turn_);
    c.callocs += event.kind == Kind::kCalloc ? 1 : 0;
    if (event.kind == Kind::kAligned) {
      const auto same = std::find_if(c.alignments.begin(), c.alignments.end(),
                                     [&](const auto& a) { return a.first == event.alignment; });
      if (same == c.alignments.end()) {
        c.alignments.emplace_back(event.alignment, 1);
      } else {
        ++same->second;
      }
    }
    if (from && !from->scripted) {
      ++window.resizes[{from->kind, lifetime.kind}];
    }
  }
  if (from && from->scripted) {
    Scripted& last = model_.script[from->kind];
    last.end = lifetime.scripted ? Scripted::End::kIntoScript : Scripted::End::kIntoClass;
    last.end_with = lifetime.kind;
    last.end_thread = lifetime.thread;
  }
  lifetimes_.insert(event.object, lifetime);
}

void Counter::end(const Lifetime& lifetime, std::uint32_t thread, bool freed) {
  if (lifetime.scripted) {
    Scripted& entry = model_.script[lifetime.kind];
    entry.length = ticks_ - lifetime.tick - 1;
    entry.end = Scripted::End::kFree;  // begin() overwrites this if it ends by realloc
    entry.end_thread = thread;
    return;
  }
  Window& window = model_.windows[window_];
  SizeClass& c = model_.classes[lifetime.kind];
  ClassState& state = states_[lifetime.kind];
  const bool brief = lifetime.window == window_;
  if (brief) {
    ClassActivity& row = row_of(window, lifetime.kind);
    --row.long_count;
    row.long_bytes -= lifetime.size;
    gauges_[c.group].ended_in_window(lifetime.clock, lifetime.size);
    const std::uint64_t length = gauges_[c.group].clock() - lifetime.clock - 1;
    const unsigned bin = std::min(log_bin(length), kAsClass - 1);
    ++row.brief[bin];
    ++state.brief[bin];
    state.lengths[bin] += static_cast<double>(length);
  } else {
    ++row_of(window, lifetime.kind).old[std::min(log_bin(window_ - lifetime.window), kAgeBins) - 1];
    // Ranks count all lifetimes. If few outlive their window, neighbours among those that do are
    // further apart.
    const std::uint64_t max_distance = 2 + 3 * state.begun / std::max<std::uint64_t>(1, ++state.outlived);
    if (lifetime.rank > state.last_end && lifetime.rank - state.last_end <= max_distance) {
      ++state.in_order;
    } else if (lifetime.rank < state.last_end && state.last_end - lifetime.rank <= max_distance) {
      ++state.in_reverse;
    }
    state.last_end = lifetime.rank;
    ++state.old_ends;
  }
  all_.take_off(lifetime.size);
  gauge(thread).end(lifetime.size, brief, freed, ticks_ - layout_.ranges()[window_].begin);
  if (!freed) {
    return;
  }
  if (thread == lifetime.thread) {
    ++c.freed_own;
  } else {
    count_thread(c.freed_by, thread);
  }
  if (const std::uint32_t by = group_of(thread); by != c.group) {
    RemoteFrees& handed = window.handed[{c.group, by}];
    ++(brief ? handed.brief : handed.old);
  }
}

void Counter::touched(const Lifetime& lifetime, std::uint64_t bytes) {
  if (lifetime.scripted) {
    model_.script[lifetime.kind].touched = bytes;
  } else if (lifetime.size >= kLargeBlock) {
    states_[lifetime.kind].large += lifetime.size;
    states_[lifetime.kind].large_touched += std::min(bytes, lifetime.size);
  }
}

void Counter::finish() {
  to_window(static_cast<std::uint32_t>(model_.windows.size()) - 1);
  leave_window();
  thin(model_.ends);
  for (std::size_t c = 0; c < states_.size(); ++c) {
    const ClassState& state = states_[c];
    if (state.old_ends > 0) {
      model_.classes[c].in_order = 1000 * state.in_order / state.old_ends;
      model_.classes[c].in_reverse = 1000 * state.in_reverse / state.old_ends;
    }
    for (std::uint32_t bin = 0; bin < kAsClass; ++bin) {
      if (state.brief[bin] > 0) {
        const double mean = state.lengths[bin] / static_cast<double>(state.brief[bin]);
        const auto low = static_cast<double>(bin_low(bin));
        const double at = bin == 0 ? 0 : std::clamp((mean - low) / low, 0.0, 1.0);
        model_.classes[c].brief.push_back({bin, state.brief[bin], whole(1000 * at)});
      }
    }
    if (state.large > 0) {
      model_.classes[c].touched = static_cast<std::uint64_t>(
          1000.0 * static_cast<double>(state.large_touched) / static_cast<double>(state.large));
    }
  }
  sort_classes();
  model_.ticks = ticks_;
  model_.sample = options_.sample;
  model_.nanoseconds = time_;
  model_.threads = numbers_.count();
  model_.sized_frees = frees_ == 0 ? 0 : 1000 * sized_ / frees_;
  model_.peak_live = layout_.statistics().peak_live;
}

// Sorts the classes by group and size, so that neighbours can be merged. Adds a class if there is
// none, and scales the counts of sizes, which the layout took of all groups, to the lifetimes of
// each class.
void Counter::sort_classes() {
  if (model_.classes.empty()) {
    SizeClass& none = model_.classes.emplace_back();
    none.sizes.emplace_back(kGranule, 1);
    none.threads.emplace_back(0, 1);
    states_.emplace_back();
  }
  for (std::size_t c = 0; c < states_.size(); ++c) {
    double all = 0;
    for (const auto& [size, count] : model_.classes[c].sizes) {
      all += static_cast<double>(count);
    }
    for (auto& [size, count] : model_.classes[c].sizes) {
      const double share = static_cast<double>(count) / all * static_cast<double>(states_[c].begun);
      count = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(share)));
    }
  }
  std::vector<std::uint32_t> order(model_.classes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [this](std::uint32_t a, std::uint32_t b) {
    const SizeClass& first = model_.classes[a];
    const SizeClass& second = model_.classes[b];
    return first.group != second.group ? first.group < second.group : mean_size(first) < mean_size(second);
  });
  std::vector<std::uint32_t> into(order.size());
  for (std::uint32_t place = 0; place < order.size(); ++place) {
    into[order[place]] = place;
  }
  for (Window& window : model_.windows) {
    window.rows.resize(model_.classes.size());
  }
  renumber(model_, into);
}

}  // namespace

bool fit(const Opener& open, const FitOptions& options, Model& model, trace::Loss& loss, std::string& error) {
  FitOptions tried = options;
  while (true) {
    const auto first = open();
    if (!first) {
      error = "the trace cannot be read";
      return false;
    }
    Layout layout(*first, tried);
    loss = first->loss();
    if (layout.ticks() == 0) {
      error = "the trace has no allocation, so there is nothing to fit";
      return false;
    }
    const auto second = open();
    if (!second) {
      error = "the trace cannot be read a second time";
      return false;
    }
    model = Model{};
    Counter counter(layout, tried, model);
    Event event;
    while (second->next(event)) {
      counter.add(event);
    }
    counter.finish();
    if (merge_until(model, tried.bytes) || tried.windows <= 4) {
      return true;
    }
    tried.windows /= 2;
    tried.script /= 2;
  }
}

}  // namespace heapwright::model
