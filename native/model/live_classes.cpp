#include "live_classes.h"

namespace heapwright::model {

void LiveClasses::start_window(const Window& window) {
  states_.assign(classes_.size(), {});
  briefs_.clear();
  for (std::size_t c = 0; c < states_.size(); ++c) {
    const ClassActivity& row = window.rows[c];
    const auto longs = static_cast<double>(row.long_count);
    states_[c].ends = row.begins() - row.long_count + row.old_ends();
    states_[c].old = row.old;
    states_[c].mean_long_size = row.long_count == 0 ? 0 : static_cast<double>(row.long_bytes) / longs;
    cohorts_[c].start_window();
  }
}

std::optional<LiveBlock> LiveClasses::end_brief(std::size_t brief) {
  if (briefs_[brief].ended) {
    return std::nullopt;
  }
  briefs_[brief].ended = true;
  return briefs_[brief].block;
}

std::optional<LiveBlock> LiveClasses::end_old(std::uint32_t c, bool by_other_group, Rng& rng) {
  State& state = states_[c];
  if (state.olds_taken > 0) {
    --state.olds_taken;
    state.old_ends.pop_front();
    return std::nullopt;
  }
  if (cohorts_[c].alive() == 0) {
    return std::nullopt;
  }
  if (!state.old_ends.empty()) {
    state.old_ends.pop_front();
  }
  return cohorts_[c].take(state.old, classes_[c], by_other_group, rng);
}

std::optional<LiveBlock> LiveClasses::take_for_realloc(std::uint32_t c, Rng& rng) {
  State& state = states_[c];
  while (!state.due.empty() && briefs_[state.due.top().brief].ended) {
    state.due.pop();
  }
  const bool old = state.olds_taken < state.old_ends.size() && cohorts_[c].alive() > 0;
  std::optional<LiveBlock> taken;
  if (!state.waiting.empty()) {
    taken = state.waiting.back();
    state.waiting.pop_back();
  } else if (!state.due.empty() && (!old || state.due.top().rank <= state.old_ends[state.olds_taken])) {
    taken = end_brief(state.due.top().brief);
    state.due.pop();
  } else if (old) {
    ++state.olds_taken;
    taken = cohorts_[c].take(state.old, classes_[c], false, rng);
  } else {
    return std::nullopt;
  }
  state.ends -= state.ends > 0 ? 1 : 0;
  state.reallocs -= state.reallocs > 0 ? 1 : 0;
  return taken;
}

bool LiveClasses::free_or_wait(std::uint32_t c, const LiveBlock& block) {
  State& state = states_[c];
  if (ends_are_reserved(c)) {
    state.waiting.push_back(block);
    return false;
  }
  state.ends -= state.ends > 0 ? 1 : 0;
  return true;
}

std::optional<std::size_t> LiveClasses::take_scripted(std::uint32_t c) {
  std::deque<std::size_t>& scripted = states_[c].scripted;
  if (scripted.empty()) {
    return std::nullopt;
  }
  const std::size_t index = scripted.front();
  scripted.pop_front();
  return index;
}

void LiveClasses::mark_for_other_groups(std::uint32_t group) {
  for (std::size_t c = 0; c < cohorts_.size(); ++c) {
    if (classes_[c].group == group) {
      cohorts_[c].mark_for_other_groups();
    }
  }
}

}  // namespace heapwright::model
