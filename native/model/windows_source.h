// A trace made up from a model of windows, and what it knows while it is made: synth.cpp runs the windows, stays.cpp begins and ends
// what lives in them.
//
// In each window a class has as many ends as the model counted. Those that a realloc needs are set aside: once as many ends are
// left as reallocs from the class are still to come, stays that are due wait for theirs (`waiting`). So a realloc finds a stay
// to take, and the number of live stays of each class is exact at the window's end.
//
// Between two borders what a group of threads has made less what it has freed stays within what was measured (Part::above, below):
// beyond, its next end comes early; at the lower bound it waits. So where a program frees a block for each it makes, the made-up
// trace does, too, and what is live does not sway as it would if begins and ends came each by themselves.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "cohort.h"
#include "draw.h"
#include "statistics.h"
#include "trace/event.h"
#include "turns.h"
#include "window_plan.h"

namespace heapwright::model {

// A brief stay that has begun in this window.
struct Brief {
  Held held;
  std::uint32_t kind = 0;
  bool ended = false;
};

struct Due {
  std::uint64_t rank = 0;  // tick within the window before which it ends, by the clock of who ends it
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

// A group of threads in this window.
struct Actor {
  std::uint64_t ticks = 0;  // that it has in the window
  std::uint64_t done = 0;   // of these
  std::uint64_t clock = 0;  // ticks that its places are parts of: its own, or all
  bool timed = false;       // the former
  DueQueue due;             // brief stays that it will end
  std::size_t old_at = 0;   // of the old ends it has
  std::size_t end_at = 0;   // of its thread ends
  std::vector<ThreadEnd> thread_ends;
  std::int64_t balance = 0;  // bytes made less bytes ended
  std::int64_t above = 0;
  std::int64_t below = 0;
  bool too_high() const { return balance > above; }
  bool too_low() const { return balance <= -below; }
};

class WindowsSource : public trace::EventSource {
 public:
  WindowsSource(Model model, std::uint64_t seed)
      : model_(std::move(model)),
        rng_(seed * 2 + 1),
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
  bool next(trace::Event& event) override {
    while (at_ == ready_.size()) {
      ready_.clear();
      at_ = 0;
      if (window_ < model_.windows.size()) {
        run_window(model_.windows[window_]);
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

  enum class Until : std::uint8_t { kTick, kWindowEnds };

  void run_window(Window& window);
  void enter(Window& window);
  void leave();
  void run_tick(std::uint64_t rank, Turns& turns);
  void run_script_ends(std::uint64_t rank);
  void run_ends(std::uint32_t group, std::uint64_t now, Until until);
  void end_threads(Actor& actor, bool all);
  void end_thread(std::uint32_t slot);
  void begin(const Begin& begin, bool may_wait);
  Due due_of(const Begin& begin) const;
  bool begin_scripted(std::size_t place);
  void end_script(std::size_t place);
  void count(std::uint32_t group, std::int64_t bytes) {
    actors_[group].balance += bytes;
    all_.balance += bytes;
  }
  bool take_victim(std::uint32_t kind, Held& held);
  void release(std::uint32_t kind, const Held& held, std::uint32_t by);
  void free_one(const Held& held, std::uint32_t kind, std::uint32_t by);
  void finish();
  void emit(trace::Event event, std::uint32_t slot);
  std::uint32_t pick_thread(std::uint32_t kind);
  std::uint32_t freeing_thread(std::uint32_t kind, std::uint32_t made, std::uint32_t by);
  std::uint64_t touched_of(std::uint32_t kind, std::uint64_t size) const {
    const std::uint64_t part = model_.classes[kind].touched;
    return size < kLargeBlock || part == kNever ? trace::kUnknown : size / 1000 * part;
  }

  Model model_;
  trace::Header header_;
  Rng rng_;
  std::vector<Cohort> cohorts_;
  std::vector<Drawer> drawers_;
  std::vector<std::uint64_t> script_objects_;
  std::priority_queue<ScriptEnd, std::vector<ScriptEnd>, std::greater<>> script_ends_;
  std::vector<std::int64_t> by_slot_;  // model thread → 1 + number in the trace; 0: none there now
  std::int64_t threads_ = 0;
  std::uint64_t objects_ = 0;
  std::size_t script_at_ = 0;
  std::size_t thread_end_at_ = 0;
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
  WindowPlan plan_;
  std::array<Actor, kGroups> actors_;
  std::vector<std::uint32_t> untimed_;  // those that go by all ticks
  std::uint64_t rank_ = 0;              // of all ticks of the window
  Actor all_;                           // bounds and balance of all groups together
  std::uint32_t turn_ = 0;              // group that had the last turn
  std::deque<Begin> late_;              // reallocs that found nothing to take

  std::vector<trace::Event> ready_;
  std::size_t at_ = 0;
};

}  // namespace heapwright::model
