// Keeps the live blocks of each size class while a window is generated, and decides which of them a
// free or a realloc takes.
//
// In each window a class has exactly as many ends as the model counted, by free or by realloc. A
// realloc must find a block to take. So once the ends that are left in a class are all for reallocs
// (ends_are_reserved), a block whose lifetime is over is not freed: it waits for its realloc. That
// makes the number of live blocks of each class exact at the end of the window.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include "cohort.h"
#include "model.h"

namespace heapwright::model {

// When a brief lifetime ends.
struct Due {
  std::uint64_t rank = 0;  // before which tick of the window, by the clock of the group that ends it
  std::size_t brief = 0;   // its index
  bool operator>(const Due& other) const {
    return rank != other.rank ? rank > other.rank : brief > other.brief;
  }
};
using DueQueue = std::priority_queue<Due, std::vector<Due>, std::greater<>>;

class LiveClasses {
 public:
  explicit LiveClasses(const std::vector<SizeClass>& classes) : classes_(classes), cohorts_(classes.size()) {}

  // Starts a window. Then call expect_realloc() and after that expect_old_end(), before the first
  // lifetime begins.
  void start_window(const Window& window);
  // One realloc will take a block of the class.
  void expect_realloc(std::uint32_t c) { ++states_[c].reallocs; }
  // A lifetime of an older window is to end before the tick `rank`; calls are in order of ends.
  void expect_old_end(std::uint32_t c, std::uint64_t rank) {
    if (states_[c].reallocs > 0) {
      states_[c].old_ends.push_back(rank);
    }
  }

  // Bytes that lifetimes beyond the window have on average; 0 if there are none.
  double mean_long_size(std::uint32_t c) const { return states_[c].mean_long_size; }

  // Adds a lifetime that outlives the window.
  void add_long(std::uint32_t c, const LiveBlock& block) { cohorts_[c].add(block); }
  // Adds one that does not; `due.brief` is next_brief().
  void add_brief(std::uint32_t c, const LiveBlock& block, const Due& due) {
    briefs_.push_back({block, c, false});
    if (states_[c].reallocs > 0) {
      states_[c].due.push(due);
    }
  }
  std::size_t next_brief() const { return briefs_.size(); }
  std::uint32_t class_of_brief(std::size_t brief) const { return briefs_[brief].size_class; }

  // The next ends take a block out. No value: a realloc took the block earlier.
  std::optional<LiveBlock> end_brief(std::size_t brief);
  std::optional<LiveBlock> end_old(std::uint32_t c, bool by_other_group, Rng& rng);
  // A block for a realloc: the one whose lifetime would end next. No value if the class has no such
  // block yet.
  std::optional<LiveBlock> take_for_realloc(std::uint32_t c, Rng& rng);

  bool ends_are_reserved(std::uint32_t c) const {
    return states_[c].reallocs > 0 && states_[c].ends <= states_[c].reallocs;
  }
  // Whether a block whose lifetime is over is to be freed now; otherwise it waits for a realloc.
  bool free_or_wait(std::uint32_t c, const LiveBlock& block);
  // The blocks that wait; at the end of the window no realloc takes them any more.
  const std::vector<LiveBlock>& waiting(std::uint32_t c) const { return states_[c].waiting; }

  // Scripted blocks (by index in the script) that a realloc is to make blocks of the class.
  void offer_scripted(std::uint32_t c, std::size_t index) { states_[c].scripted.push_back(index); }
  std::optional<std::size_t> take_scripted(std::uint32_t c);
  const std::deque<std::size_t>& offered(std::uint32_t c) const { return states_[c].scripted; }

  // A thread of the group has ended: other groups free the blocks that are live now.
  void mark_for_other_groups(std::uint32_t group);
  // Calls visit(class, block) for each block that outlives the windows so far.
  template <typename Visit>
  void each_long(Visit&& visit) const {
    for (std::uint32_t c = 0; c < cohorts_.size(); ++c) {
      cohorts_[c].each([&](const LiveBlock& block) { visit(c, block); });
    }
  }

 private:
  struct Brief {
    LiveBlock block;
    std::uint32_t size_class = 0;
    bool ended = false;
  };
  // A class in this window.
  struct State {
    std::uint64_t ends = 0;        // still to come, by free or by realloc
    std::uint64_t reallocs = 0;    // still to come, of these
    std::uint64_t olds_taken = 0;  // blocks of older windows that a realloc took before their time
    double mean_long_size = 0;     // bytes
    std::array<std::uint64_t, kAgeBins> old{};  // ends of older lifetimes still to come, by age
    std::vector<LiveBlock> waiting;
    DueQueue due;                        // of brief lifetimes; only if the class has reallocs
    std::deque<std::uint64_t> old_ends;  // ranks, in order; only if the class has reallocs
    std::deque<std::size_t> scripted;
  };

  const std::vector<SizeClass>& classes_;
  std::vector<Cohort> cohorts_;
  std::vector<State> states_;
  std::vector<Brief> briefs_;
};

}  // namespace heapwright::model
