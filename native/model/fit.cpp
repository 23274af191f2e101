#include "fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "gauges.h"
#include "layout.h"
#include "merge.h"
#include "trace/live_table.h"

namespace heapwright::model {

using trace::Event;
using trace::Kind;

namespace {

struct Stay {
  std::uint64_t tick = 0;
  std::uint64_t size = 0;
  std::uint64_t rank = 0;  // among those of its class
  std::uint32_t window = 0;
  std::uint32_t kind = 0;  // class, or place in the script
  std::uint32_t thread = 0;
  bool scripted = false;
};

struct ClassState {
  std::uint64_t begun = 0;
  std::uint64_t outlived = 0;  // their window
  std::uint64_t last_end = 0;  // rank of the old stay that ended last
  std::uint64_t old_ends = 0;
  std::uint64_t in_order = 0;
  std::uint64_t in_reverse = 0;
  std::uint64_t large = 0;
  std::uint64_t large_touched = 0;
  std::array<std::uint64_t, kLifeBins> brief{};
  std::array<double, kLifeBins> lengths{};  // sums, in ticks
};

// The second pass.
class Counter {
 public:
  Counter(Layout& layout, const FitOptions& options, Model& model)
      : layout_(layout), options_(options), model_(model), known_(layout.classes().size() * kGroups, -1) {
    model.script_from = layout.script_from();
    for (const Span& span : layout.spans()) {
      Window& window = model.windows.emplace_back();
      window.ticks = span.end - span.begin;
    }
  }

  void add(const Event& event);
  void finish();

 private:
  std::uint32_t class_for(std::uint64_t size, std::uint32_t thread);
  static Row& row_of(Window& window, std::uint32_t kind) {
    if (kind >= window.rows.size()) {
      window.rows.resize(kind + 1);
    }
    return window.rows[kind];
  }
  void sort_classes();
  void begin(const Event& event, std::optional<Stay> from);
  void end(const Stay& stay, bool freed);
  void touched(const Stay& stay, std::uint64_t bytes);
  void enter_tick();
  void enter_gap();
  void to_window(std::uint32_t window);
  // How far into the window a tick is.
  double part(std::uint64_t tick) const {
    const Span& span = layout_.spans()[window_];
    return span.begin == span.end
               ? 0.5
               : (static_cast<double>(tick - span.begin) + 0.5) / static_cast<double>(span.end - span.begin);
  }

  Layout& layout_;
  const FitOptions& options_;
  Model& model_;
  std::vector<std::int64_t> known_;  // shared class and group → class; -1 for none yet
  std::vector<ClassState> states_;
  trace::LiveTable<Stay> stays_;
  Places places_;
  Portions brief_;
  Portions old_;
  Place long_at_;
  Place old_at_;
  std::uint64_t ticks_ = 0;
  std::uint64_t time_ = 0;
  std::uint64_t window_since_ = 0;  // time
  std::uint64_t frees_ = 0;
  std::uint64_t sized_ = 0;
  std::uint32_t window_ = 0;
};

void Counter::to_window(std::uint32_t window) {
  if (window == window_) {
    return;
  }
  Window& left = model_.windows[window_];
  left.brief_bursts = brief_.take();
  left.old_bursts = old_.take();
  left.long_at = long_at_.take();
  left.old_at = old_at_.take();
  left.nanoseconds = time_ - window_since_;
  window_since_ = time_;
  window_ = window;
}

// The window of the tick that begins now.
void Counter::enter_tick() {
  const auto& spans = layout_.spans();
  std::uint32_t window = window_;
  while (window + 1 < spans.size() && spans[window].end <= ticks_) {
    ++window;
  }
  to_window(window);
}

// The window of what is freed between the last tick and the next.
void Counter::enter_gap() {
  const auto& spans = layout_.spans();
  std::uint32_t window = window_;
  while (window + 1 < spans.size() && spans[window].end <= ticks_ &&
         (spans[window].begin < spans[window].end || spans[window].begin < ticks_)) {
    ++window;
  }
  to_window(window);
}

void Counter::add(const Event& event) {
  ++model_.events;
  if (makes(event.kind)) {
    ++model_.allocations;
    enter_tick();
    time_ = std::max(time_, event.time);
    begin(event, std::nullopt);
    return;
  }
  time_ = std::max(time_, event.time);
  if (event.kind == Kind::kThreadEnd) {
    places_.end(event.thread);
    return;
  }
  const Stay* known = ends(event.kind) || event.kind == Kind::kRealloc || event.kind == Kind::kTouched
                          ? stays_.find(event.object)
                          : nullptr;
  if (known == nullptr) {
    return;
  }
  const Stay stay = *known;
  if (event.touched != trace::kUnknown) {
    touched(stay, event.touched);
  }
  if (event.kind == Kind::kRealloc) {
    enter_tick();
    end(stay, false);
    stays_.erase(event.object);
    begin(event, stay);
  } else if (ends(event.kind)) {
    enter_gap();
    end(stay, true);
    stays_.erase(event.object);
    ++frees_;
    sized_ += event.kind == Kind::kFreeSized ? 1 : 0;
    const std::uint32_t thread = places_.of(event.thread);
    if (stay.scripted) {
      model_.script[stay.kind].end_thread = thread;
    } else {
      SizeClass& c = model_.classes[stay.kind];
      if (thread == stay.thread) {
        ++c.freed_own;
      } else {
        count_thread(c.freed_by, thread);
      }
    }
  }
}

// The class of a size for a thread, a new one where it is the first.
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

void Counter::begin(const Event& event, std::optional<Stay> from) {
  Stay stay{.tick = ticks_, .size = event.size, .window = window_, .thread = places_.of(event.thread)};
  ++ticks_;
  brief_.close();
  old_.close();
  Window& window = model_.windows[window_];
  if (event.size >= model_.script_from && model_.script.size() < options_.script) {
    stay.scripted = true;
    stay.kind = static_cast<std::uint32_t>(model_.script.size());
    Scripted& entry = model_.script.emplace_back();
    entry.tick = stay.tick;
    entry.size = event.size;
    entry.thread = entry.end_thread = stay.thread;
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
    stay.kind = class_for(event.size, stay.thread);
    stay.rank = states_[stay.kind].begun++;
    SizeClass& c = model_.classes[stay.kind];
    count_thread(c.threads, stay.thread);
    // Taken to outlive its window until it does not.
    Row& row = row_of(window, stay.kind);
    ++row.long_count;
    row.long_bytes += stay.size;
    long_at_.add(part(stay.tick), stay.size);
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
      ++window.resizes[{from->kind, stay.kind}];
    }
  }
  if (from && from->scripted) {
    Scripted& last = model_.script[from->kind];
    last.end = stay.scripted ? Scripted::End::kIntoScript : Scripted::End::kIntoClass;
    last.end_with = stay.kind;
    last.end_thread = stay.thread;
  }
  stays_.insert(event.object, stay);
}

void Counter::end(const Stay& stay, bool freed) {
  const std::uint64_t length = ticks_ - stay.tick - 1;
  if (stay.scripted) {
    model_.script[stay.kind].length = length;
    model_.script[stay.kind].end = Scripted::End::kFree;  // a realloc says better where it goes
    return;
  }
  Window& window = model_.windows[window_];
  if (stay.window == window_) {
    Row& row = row_of(window, stay.kind);
    --row.long_count;
    row.long_bytes -= stay.size;
    long_at_.add(part(stay.tick), stay.size, -1);
    const unsigned bin = std::min(log_bin(length), kAsClass - 1);
    ++row.brief[bin];
    ++states_[stay.kind].brief[bin];
    states_[stay.kind].lengths[bin] += static_cast<double>(length);
  } else {
    ++row_of(window, stay.kind).old[std::min(log_bin(window_ - stay.window), kAgeBins) - 1];
    old_at_.add(part(ticks_), stay.size);
    ClassState& state = states_[stay.kind];
    // Neighbours among those that outlive their window are further apart where most do not.
    const std::uint64_t near = 2 + 3 * state.begun / std::max<std::uint64_t>(1, ++state.outlived);
    if (stay.rank > state.last_end && stay.rank - state.last_end <= near) {
      ++state.in_order;
    } else if (stay.rank < state.last_end && state.last_end - stay.rank <= near) {
      ++state.in_reverse;
    }
    state.last_end = stay.rank;
    ++state.old_ends;
  }
  if (freed) {
    (stay.window == window_ ? brief_ : old_).add(stay.size);
  }
}

void Counter::touched(const Stay& stay, std::uint64_t bytes) {
  if (stay.scripted) {
    model_.script[stay.kind].touched = bytes;
  } else if (stay.size >= kLargeBlock) {
    states_[stay.kind].large += stay.size;
    states_[stay.kind].large_touched += std::min(bytes, stay.size);
  }
}

void Counter::finish() {
  to_window(static_cast<std::uint32_t>(model_.windows.size()) - 1);
  model_.windows[window_].nanoseconds += time_ - window_since_;
  model_.windows[window_].brief_bursts = brief_.take();
  model_.windows[window_].old_bursts = old_.take();
  model_.windows[window_].long_at = long_at_.take();
  model_.windows[window_].old_at = old_at_.take();
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
  model_.nanoseconds = time_;
  model_.threads = places_.count();
  model_.sized_frees = frees_ == 0 ? 0 : 1000 * sized_ / frees_;
  model_.peak_live = layout_.statistics().peak_live;
}

// By group and size, so that neighbours can become one; with at least one class, and counts of sizes that are the class's own.
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
