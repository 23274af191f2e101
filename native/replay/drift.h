// How much memory an epoch's threads can have at once, in whatever order they go: each its most, though in the trace they did not
// have it at the same time. A thread that frees what it makes adds next to nothing, however long it goes on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trace/event.h"

namespace heapwright::replay {

class Drift {
 public:
  explicit Drift(std::size_t threads) : threads_(threads) {}

  // Bytes above what was live as the epoch began.
  std::uint64_t most() const { return most_; }

  // `before`: the size of what was made before this epoch, 0 where it is none of it.
  template <typename SizeOf>
  void add(const trace::Event& event, SizeOf&& before) {
    if (is_allocation(event.kind)) {
      if (made_.empty()) {
        first_made_ = event.object;
      }
      // Objects are numbered as they are made; one that is not in turn counts as made and never as freed.
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

  // The next epoch.
  void clear() {
    made_.clear();
    for (const std::uint32_t thread : grown_) {
      threads_[thread] = {};
    }
    grown_.clear();
    most_ = 0;
  }

 private:
  struct Thread {
    std::int64_t now = 0;
    std::int64_t most = 0;
    bool grown = false;
  };

  void grow(std::uint32_t number, std::int64_t bytes) {
    Thread& thread = threads_[number];
    if (!thread.grown) {
      thread.grown = true;
      grown_.push_back(number);
    }
    thread.now += bytes;
    most_ += static_cast<std::uint64_t>(std::max(thread.now, thread.most) - thread.most);
    thread.most = std::max(thread.now, thread.most);
  }

  std::vector<Thread> threads_;
  std::vector<std::uint32_t> grown_;  // those that are not as they began
  std::vector<std::uint64_t> made_;   // sizes of what was made in this epoch
  std::uint64_t first_made_ = 0;
  std::uint64_t most_ = 0;
};

}  // namespace heapwright::replay
