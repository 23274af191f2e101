// Follows the groups of threads through a window: the clock of each, the lifetimes that it still
// has to end, and its bounds of live bytes.
//
// Since the window began, a group has allocated more bytes than it has freed, or fewer. The model
// has measured the bounds of that difference (GroupActivity::above, below). Above the upper bound
// the group's next end comes early, and at the lower bound it waits. So if a program frees a block
// for each one it allocates, the synthetic trace does too. Without bounds starts and ends would
// come independently of each other, and live bytes would vary more than in the program.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "live_classes.h"
#include "model.h"
#include "window_schedule.h"

namespace heapwright::model {

// The difference of allocated and freed bytes since the window began.
class ByteBalance {
 public:
  ByteBalance() = default;
  ByteBalance(std::int64_t above, std::int64_t below) : above_(above), below_(below) {}
  void add(std::int64_t bytes) { bytes_ += bytes; }
  bool too_high() const { return bytes_ > above_; }
  bool too_low() const { return bytes_ <= -below_; }

 private:
  std::int64_t bytes_ = 0;
  std::int64_t above_ = 0;
  std::int64_t below_ = 0;
};

// One group of threads in this window.
struct GroupState {
  std::uint64_t ticks = 0;  // in the whole window
  std::uint64_t done = 0;   // ticks so far
  bool timed = false;  // it has a clock of its own (has_clock); otherwise it goes by all ticks of the window
  std::uint64_t clock = 0;  // ticks of the clock that it goes by, in the whole window
  DueQueue due;             // brief lifetimes that it will end
  std::size_t old_at = 0;   // the next of the older lifetimes that it ends, in its schedule
  std::vector<ThreadEnd> thread_ends;
  std::size_t thread_end_at = 0;  // the next of them
  ByteBalance balance;
};

class GroupStates {
 public:
  // Starts a window.
  void start(const Window& window, const WindowSchedule& schedule);

  GroupState& operator[](std::uint32_t group) { return groups_[group]; }
  // Groups that go by all ticks of the window.
  const std::vector<std::uint32_t>& untimed() const { return untimed_; }
  std::array<std::uint64_t, kGroups> ticks() const;

  // A group allocates so many bytes, or frees them if negative.
  void count(std::uint32_t group, std::int64_t bytes) {
    groups_[group].balance.add(bytes);
    all_.add(bytes);
  }
  bool too_high(std::uint32_t group) const { return groups_[group].balance.too_high() || all_.too_high(); }
  bool too_low(std::uint32_t group) const { return groups_[group].balance.too_low() || all_.too_low(); }

  // Returns the tick before which a lifetime ends that begins now and does not outlive the window.
  //   begin  the lifetime
  //   group  of the thread that begins it
  //   now    ticks of the window so far
  std::uint64_t end_of(const ScheduledBegin& begin, std::uint32_t group, std::uint64_t now) const;

 private:
  std::array<GroupState, kGroups> groups_;
  std::vector<std::uint32_t> untimed_;
  ByteBalance all_;  // of all groups together
};

}  // namespace heapwright::model
