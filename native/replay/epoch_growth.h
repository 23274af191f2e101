// Bounds how much memory the threads of one epoch can have at once, in any order of their events.
//
// The bound is the sum of each thread's greatest growth, although in the trace the threads did not
// reach it at the same time. A thread that frees the blocks it allocates adds almost nothing,
// however many events it has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trace/event.h"

namespace heapwright::replay {

class EpochGrowth {
 public:
  explicit EpochGrowth(std::size_t threads) : threads_(threads) {}

  // The bound in bytes, above the live bytes at the start of the epoch.
  std::uint64_t max_bytes() const { return max_bytes_; }

  // Adds an event. `before(object)` returns the size of an object that was allocated before this
  // epoch, 0 if there is none.
  template <typename SizeOf>
  void add(const trace::Event& event, SizeOf&& before) {
    if (is_allocation(event.kind)) {
      if (made_.empty()) {
        first_made_ = event.object;
      }
      // Objects are numbered in order of allocation. One with another number counts as allocated
      // and never as freed.
      if (event.object - first_made_ == made_.size()) {
        made_.push_back(event.size);
      }
      grow(event.thread, static_cast<std::int64_t>(event.size));
    } else if (event.kind == trace::Kind::kRealloc || is_free(event.kind)) {
      const bool here = event.object - first_made_ < made_.size();
      const std::uint64_t size = here ? made_[event.object - first_made_] : before(event.object);
      const std::uint64_t after = event.kind == trace::Kind::kRealloc ? event.size : 0;
      if (here) {
        made_[event.object - first_made_] = after;
      }
      grow(event.thread, static_cast<std::int64_t>(after - size));
    }
  }

  // Starts the next epoch.
  void clear() {
    made_.clear();
    for (const std::uint32_t thread : changed_) {
      threads_[thread] = {};
    }
    changed_.clear();
    max_bytes_ = 0;
  }

 private:
  struct Thread {
    std::int64_t now = 0;   // bytes allocated less bytes freed in this epoch
    std::int64_t peak = 0;  // the greatest value of `now`
    bool changed = false;   // listed in changed_
  };

  void grow(std::uint32_t number, std::int64_t bytes) {
    Thread& thread = threads_[number];
    if (!thread.changed) {
      thread.changed = true;
      changed_.push_back(number);
    }
    thread.now += bytes;
    max_bytes_ += static_cast<std::uint64_t>(std::max(thread.now, thread.peak) - thread.peak);
    thread.peak = std::max(thread.now, thread.peak);
  }

  std::vector<Thread> threads_;
  std::vector<std::uint32_t> changed_;  // threads that have grown or shrunk in this epoch
  std::vector<std::uint64_t> made_;     // sizes of the objects allocated in this epoch
  std::uint64_t first_made_ = 0;
  std::uint64_t max_bytes_ = 0;
};

}  // namespace heapwright::replay
