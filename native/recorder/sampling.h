// Records a random sample of the program's objects, each with all its events, and windows of time.
//
// A thread counts its requests for memory (ticks). For each group of small sizes it counts down to
// the next chosen request. The fast path of malloc only counts (sample_calls.h). An object of `size`
// bytes is chosen with probability
//
//     p(size) = 1 - (1 - 1/N)^(1 + size/1024)          1 in N small objects, nearly all large ones
//
// A realloc ends the object and begins a new one, which draws by its own size. So a buffer that has
// grown large is chosen as surely as one that was allocated large, and no object is drawn twice.
// The reader therefore needs only the size at which an object began. A sample has no realloc
// events.
//
// Of each run of N requests of a group one is chosen, at a random place. So a sample has as many
// objects of each size as it should, up to one, and the errors of live bytes are smaller than if
// each object drew by itself:
//
//     requests of 32 bytes, N = 4      ..x. | x... | ...x | .x..
//
// Objects of 1 KiB and more draw on the slow path, by numbers that lie evenly in each group of sizes.
// A chosen object also gets a level: it is part of the samples of rate N·2^k for k up to its level
// (raw_format/format.h says what levels are for). Of two small chosen objects of a group that follow
// each other at a level, one reaches the next level.
//
// Cost: nearly all of it is that of calls on chosen objects. Their number is compared with the CPU
// time of the process; if there are too many, the lowest level is dropped, as in a file that is
// full.
//
// A window: chosen objects enter the table from the start of the process on, and nothing is
// written. When the window opens, the live objects of the table are written first, and events from
// then on. When it closes, the file is finished.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <numeric>

#include "record.h"
#include "sample_choice/sample_choice.h"

namespace heapwright::recorder {

// What HEAPWRIGHT_RECORD_SAMPLE and the other variables of a sample say.
struct Sampling {
  std::uint64_t rate = 1;       // N
  std::uint64_t max_bytes = 0;  // of the raw file; 0: no bound
  // That recording may add to the process's CPU time; 0: no bound. A complete recording (rate 1)
  // has none.
  std::uint64_t max_percent = 0;
  std::uint64_t after_ns = 0;  // the window begins so long after the recording began
  std::uint64_t for_ns = 0;    // and lasts so long; 0: to the end
  int window_signal = 0;       // begins the window, and ends it
  bool windowed = false;
  // Whether levels are dropped, so that objects must have one.
  [[nodiscard]] bool may_thin() const { return max_bytes != 0 || (max_percent != 0 && rate > 1); }
};
inline constexpr std::uint64_t kDefaultPercent = 3;
extern Sampling sampling;

using sample_choice::kDrawBytes;  // a request of so many bytes and more takes the slow path
using sample_choice::kGroupBytes;
using sample_choice::kSmallGroups;

// A thread's part of the fast path.
struct SampleThread {
  // The run of a group under way.
  struct Run {
    std::int64_t rest = 0;       // requests behind the chosen one
    std::uint32_t level = 0;     // the lowest level of the sample when it was drawn
    std::uint64_t waiting = 0;   // bit k: the first of two objects has reached level k
    std::uint64_t promoted = 0;  // bit k: that one has also reached level k + 1
  };

  // Of each group of small sizes: requests until the next chosen one; -1: this one is chosen.
  std::array<std::int64_t, kSmallGroups> left{};
  std::array<Run, kSmallGroups> runs{};
  std::array<sample_choice::EvenNumbers, sample_choice::kLargeGroups> numbers{};
  std::int64_t ticks_at_zero = 0;  // the thread's ticks when the sum of `left` is 0
  std::uint64_t random = 0;        // state of its generator; 0: not begun
  std::uint32_t top_level = 0;     // the highest level of the objects that it allocated or freed
  std::uint32_t uncounted = 0;     // calls on chosen objects that Session::chosen_calls does not have yet
  bool in_window = false;          // all its ticks are in the window, or the recording has no window
  // Moves the countdown of a group back by `requests`, which does not change the ticks.
  void put_off(std::size_t group, std::int64_t requests) {
    left[group] += requests;
    ticks_at_zero += requests;
  }
  [[nodiscard]] std::uint64_t ticks() const {
    return static_cast<std::uint64_t>(
        std::accumulate(left.begin(), left.end(), ticks_at_zero, std::minus<>()));
  }
  // The value of Other::kTicks for so many ticks of this thread.
  [[nodiscard]] std::uint64_t as_record(std::uint64_t ticks) const {
    return ticks << 1 | std::uint64_t{!in_window};
  }
};
[[gnu::tls_model("initial-exec")]] extern thread_local constinit SampleThread sample_self;

// Lets a forked child count its own requests only, draw by itself, and forget a window that has
// ended, also where the C library forks, as daemon() does. Called once, in the process's first
// thread.
void watch_forks();

// Draws whether this request is chosen, after it was counted. Returns its level, or -1.
int choose(SampleThread& thread, std::size_t size);

// Records a chosen object that was just allocated.
//
// kind            kMalloc or kCalloc
// block           its address
// made            requested bytes; for a large block also what begin_touching() says
// alignment_log2  -1: none was requested
// level           from choose()
void on_chosen(ThreadState& self, Tag kind, const void* block, LargeBlock made, int alignment_log2,
               int level);

// Records the free of a block if it is chosen; it has not happened yet.
void on_possible_free(ThreadState& self, Tag kind, const void* block);

// Like on_possible_free; returns whether the block was chosen, and its object as it was.
bool end_chosen(ThreadState& self, Tag kind, const void* block, ChosenObject& object);

// Adds the ticks of a thread that ends to the header. Records that it ends if it has a number in
// the file.
void record_thread_end(ThreadState& self);

// Whether events are written now: there is no window, or it is open.
bool window_open();
// Lets the signal of the window, if there is one, begin and end it.
void watch_window_signal();
// Forgets the signals of a window that has ended. A child that is forked during a window is in it
// at once.
void reset_window_signal();
}  // namespace heapwright::recorder
