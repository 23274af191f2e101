#include "group_states.h"

#include <algorithm>

namespace heapwright::model {

void GroupStates::start(const Window& window, const WindowSchedule& schedule) {
  constexpr std::int64_t kUnbounded = std::int64_t{1} << 62;
  const GroupActivity& all = window.parts[kGroups];
  all_ = all == GroupActivity{}
             ? ByteBalance(kUnbounded, kUnbounded)
             : ByteBalance(static_cast<std::int64_t>(all.above), static_cast<std::int64_t>(all.below));
  untimed_.clear();
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    const GroupActivity& activity = window.parts[group];
    GroupState& state = groups_[group] = {};
    state.ticks = schedule[group].begins.size();
    state.timed = schedule[group].timed;
    state.clock = state.timed ? state.ticks : window.ticks;
    state.balance =
        ByteBalance(static_cast<std::int64_t>(activity.above), static_cast<std::int64_t>(activity.below));
    if (!state.timed) {
      untimed_.push_back(group);
    }
  }
}

std::array<std::uint64_t, kGroups> GroupStates::ticks() const {
  std::array<std::uint64_t, kGroups> ticks{};
  std::transform(groups_.begin(), groups_.end(), ticks.begin(),
                 [](const GroupState& group) { return group.ticks; });
  return ticks;
}

std::uint64_t GroupStates::end_of(const ScheduledBegin& begin, std::uint32_t group, std::uint64_t now) const {
  const GroupState& own = groups_[group];
  const GroupState& freer = groups_[begin.freed_by];
  const auto clock = static_cast<double>(freer.clock);
  std::uint64_t end = own.done + 1 + begin.length;
  if (begin.until > 0) {
    end = whole(static_cast<double>(begin.until) * clock);
  } else if (begin.freed_by != group || !own.timed) {
    end =
        whole(static_cast<double>(end) / static_cast<double>(std::max<std::uint64_t>(1, own.ticks)) * clock);
  }
  const bool within_tick =
      begin.freed_by == group || !freer.timed;  // the tick under way counts for the freeing group
  const std::uint64_t next = (freer.timed ? freer.done : now) + (within_tick ? 1 : 0);
  return std::min(std::max(next, end), std::max(freer.clock, next));
}

}  // namespace heapwright::model
