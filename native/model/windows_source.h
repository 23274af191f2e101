// Generates a synthetic trace from a windows model, one window at a time.
//
// A window is generated in three steps. The schedule (window_schedule.h) says when each lifetime
// begins and when lifetimes of older windows end. Then the window runs tick by tick: a group of
// threads has its turn (turns.h), the lifetimes whose time is over end, and the group begins its
// next lifetime. At the border everything that the window still owes is done, so the number of live
// blocks of each class is exactly that of the model.
//
// The state lives in parts: live_classes.h (live blocks of each class), group_states.h (clocks and
// bounds of the groups of threads), script_player.h (large lifetimes one by one), event_writer.h
// (times and numbers of events).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cohort.h"
#include "draw.h"
#include "event_writer.h"
#include "group_states.h"
#include "live_classes.h"
#include "model.h"
#include "script_player.h"
#include "thread_chooser.h"
#include "trace/event.h"
#include "turns.h"
#include "window_schedule.h"

namespace heapwright::model {

class WindowsSource : public trace::EventSource {
 public:
  WindowsSource(Model model, std::uint64_t seed);

  const trace::Header& header() const override { return header_; }
  trace::Loss loss() const override { return {}; }
  bool next(trace::Event& event) override;

 private:
  // How far run_ends() goes: to a tick and within the bounds of live bytes, or to the end of the
  // window without regard to bounds.
  enum class Until : std::uint8_t { kTick, kWindowEnds };

  void run_window(Window& window);
  void start_window(Window& window);
  void end_window();
  void run_tick(std::uint64_t rank, Turns& turns);
  void run_script_ends(std::uint64_t rank);
  void run_ends(std::uint32_t group, std::uint64_t now, Until until);
  void end_threads(GroupState& group, bool all);
  void end_thread(std::uint32_t thread);
  void begin(const ScheduledBegin& begin, bool may_wait);
  void begin_scripted(std::size_t index);
  void end_scripted(std::size_t index);
  void free_scripted(std::size_t index);
  void end_lifetime(std::uint32_t c, const LiveBlock& block, std::uint32_t by);
  void free_block(std::uint32_t c, const LiveBlock& block, std::uint32_t by);
  void finish();
  std::uint64_t touched_bytes(std::uint32_t c, std::uint64_t size) const;

  Model model_;
  trace::Header header_;
  Rng rng_;
  std::vector<Drawer> drawers_;  // by class
  ThreadChooser threads_;
  LiveClasses live_;
  GroupStates groups_;
  ScriptPlayer script_;
  EventWriter events_;
  std::size_t thread_end_at_ = 0;  // the next of model_.ends
  std::size_t window_ = 0;         // index of the window under way
  std::uint64_t tick_ = 0;         // of the trace, at which the window begins
  std::uint32_t last_turn_ = 0;    // group that had the last turn
  bool finished_ = false;

  // Of the window under way.
  WindowSchedule schedule_;
  std::uint64_t ticks_ = 0;
  std::uint64_t rank_ = 0;              // ticks so far
  std::deque<ScheduledBegin> waiting_;  // lifetimes that are to begin by realloc and found no block to take
};

}  // namespace heapwright::model
