// Follows the script of a model: the large lifetimes that are kept one by one, and when each begins
// and ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "model.h"

namespace heapwright::model {

class ScriptPlayer {
 public:
  // `script` must outlive this object.
  explicit ScriptPlayer(const std::vector<Scripted>& script)
      : script_(script), objects_(script.size(), kNever) {}

  // The index of the entry that begins next, if it begins at or before a tick of the trace.
  std::optional<std::size_t> next_begin(std::uint64_t tick) const {
    return next_ < script_.size() && script_[next_].tick <= tick ? std::optional(next_) : std::nullopt;
  }
  // Calls visit(entry) for the entries that begin before a tick and have not begun yet.
  template <typename Visit>
  void each_before(std::uint64_t tick, Visit&& visit) const {
    for (std::size_t i = next_; i < script_.size() && script_[i].tick < tick; ++i) {
      visit(script_[i]);
    }
  }

  // Takes the object of the earlier entry that a realloc makes this entry of; no value if that
  // entry is not live or goes elsewhere.
  std::optional<std::uint64_t> take_predecessor(std::size_t index) {
    const std::size_t from = script_[index].begin_with;
    const Scripted& earlier = script_[from];
    if (objects_[from] == kNever || earlier.end != Scripted::End::kIntoScript || earlier.end_with != index) {
      return std::nullopt;
    }
    return take(from);
  }
  // The next entry has begun with this object.
  void begun(std::uint64_t object) {
    const Scripted& entry = script_[next_];
    objects_[next_] = object;
    if (entry.end == Scripted::End::kFree || entry.end == Scripted::End::kIntoClass) {
      ends_.push({entry.tick + 1 + entry.length, next_});
    }
    ++next_;
  }

  // The tick of the earliest end by free or by realloc into a class; kNever if none is left.
  std::uint64_t next_end() const { return ends_.empty() ? kNever : ends_.top().first; }
  // Takes the index of the entry that ends then.
  std::size_t take_end() {
    const std::size_t index = ends_.top().second;
    ends_.pop();
    return index;
  }

  // The object of an entry; kNever if it is not live.
  std::uint64_t object(std::size_t index) const { return objects_[index]; }
  // The same, and the entry has no object from now on.
  std::uint64_t take(std::size_t index) { return std::exchange(objects_[index], kNever); }

 private:
  using TickAndIndex = std::pair<std::uint64_t, std::size_t>;

  const std::vector<Scripted>& script_;
  std::vector<std::uint64_t> objects_;  // by index; kNever if not live
  std::priority_queue<TickAndIndex, std::vector<TickAndIndex>, std::greater<>> ends_;
  std::size_t next_ = 0;  // index of the entry that begins next
};

}  // namespace heapwright::model
