// The fitted model of a trace: what docs/synth.md describes and `heapwright fit` writes as JSON.
//
// A trace is cut into windows of ticks (a tick is an allocation or a realloc). A block from its allocation or realloc to its
// next realloc or its free is a stay. Stays of at least `script_from` bytes are few and are kept one by one, the script. All
// others belong to a size class, and for each window and class it is counted how many stays begin and
//     end in the same window        by log2 of their length in ticks
//     outlive the window
// and how many stays of older windows end, by log2 of their age in windows. So the number of live stays of a class at every
// border of two windows is known exactly, whatever is made up in between; that is what keeps live bytes right.
//
//     window      0        1        2     ...
//     begins    ├──┤ ├──────────────────┤          short, by length    long: ends in window 2, age 2, bin 2 of log_bin
//
// Windows are equal shares of all ticks, cut further where live bytes peak and where threads end; where much is freed at once
// between two ticks a window of no ticks holds just that.
//
// Threads take turns, and while one has its turn the others stand still. So each group of threads has a clock of its own, which
// goes on when one of its stays begins: lengths of stays are by the clock of who began them, and where in a window something
// happens is by the clock of who does it. How the clocks go together is told by the number of turns.
//
//     all ticks    0 1 2 3 4 5 6 7 8 9          one stay of A lasts 3 of its own ticks, whatever B does meanwhile
//     clock of A   0 1 2       3 4
//     clock of B         0 1 2     3 4
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace heapwright::model {

inline constexpr unsigned kLifeBins = 48;
inline constexpr unsigned kAgeBins = 12;
inline constexpr std::uint32_t kGroups =
    8;  // of threads; thread 8 shares with thread 1, 9 with 2 …; nobody with 0, mostly main
inline constexpr unsigned kAsClass = kLifeBins - 1;  // bin of those whose lengths are as in SizeClass::brief
inline constexpr std::uint64_t kNever = ~std::uint64_t{0};

// A number of things that came out as a fraction.
inline std::uint64_t whole(double value) { return static_cast<std::uint64_t>(std::llround(value)); }

constexpr std::uint32_t group_of(std::uint32_t thread) {
  return thread < kGroups ? thread : 1 + (thread - 1) % (kGroups - 1);
}

// Stays of about the same length.
struct Lengths {
  std::uint32_t bin = 0;
  std::uint64_t count = 0;
  std::uint64_t at = 500;  // where their mean lies, in thousandths of the bin
};

struct SizeClass {
  // Sizes and how often each was asked for; the rare ones are taken together at their mean.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes;
  std::uint64_t callocs = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> alignments;  // alignment, count
  // Of 1000 old stays that end, so many did after their neighbour in order of making did, and before.
  std::uint64_t in_order = 0;
  std::uint64_t in_reverse = 0;
  // Of 1000 bytes of blocks of 64 KiB and more, so many were touched; kNever where that is not known or there are none.
  std::uint64_t touched = kNever;
  std::vector<std::pair<std::uint32_t, std::uint64_t>>
      threads;                  // that begin its stays: thread, count; never empty
  std::vector<Lengths> brief;   // of brief stays, in all windows together; by bin, each once
  std::uint64_t freed_own = 0;  // frees by the thread that began the stay
  std::vector<std::pair<std::uint32_t, std::uint64_t>> freed_by;  // by others: thread, count
  std::uint32_t group = 0;  // of its threads; only classes of one group may become one (not in the JSON)
};

struct ClassActivity {
  std::uint64_t long_count = 0;
  std::uint64_t long_bytes = 0;  // 0 where the class has one size
  std::array<std::uint64_t, kLifeBins> brief{};
  std::array<std::uint64_t, kAgeBins> old{};
  bool empty() const;
  std::uint64_t begins() const;
  std::uint64_t old_ends() const;
  void add(const ClassActivity& other);
};

// What one group of threads does in a window.
struct GroupActivity {
  // Into how many equal portions the bytes it frees fall, those of stays of this window and those of older ones: many where each
  // is freed at a time of its own, few where frees come in bursts.
  std::uint64_t brief_bursts = 0;
  std::uint64_t old_bursts = 0;
  // Where in the window, on average, in thousandths of the group's ticks: what outlives it begins, and what is older ends.
  std::uint64_t long_at = 500;
  std::uint64_t old_at = 500;
  // What it has made less what it has freed since the window began, in bytes: the most, and the least, below 0. Near to each other
  // where a block is freed for each that is made.
  std::uint64_t above = 0;
  std::uint64_t below = 0;
  bool operator==(const GroupActivity&) const = default;
};

// Whether a group's clock can tell the time in a window: hardly where it makes next to nothing of what it frees. All ticks do then.
constexpr bool has_clock(std::uint64_t ticks, std::uint64_t frees) { return ticks > 0 && 4 * ticks >= frees; }

// Stays of one group that another frees.
struct RemoteFrees {
  std::uint64_t brief = 0;
  std::uint64_t old = 0;
};

using GroupPair = std::pair<std::uint32_t, std::uint32_t>;

struct Window {
  std::uint64_t ticks = 0;
  std::uint64_t nanoseconds = 0;
  std::uint64_t turns =
      0;  // into how many of equal length its ticks fall: a few long ones, whatever short ones are between
  std::array<GroupActivity, kGroups + 1>
      parts{};                      // the last: bounds of all groups together, where there are several
  std::vector<ClassActivity> rows;  // by class
  std::map<GroupPair, RemoteFrees> handed;                                   // who began them, who frees them
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> resizes;  // from class, to class: how many
};

// The end of a thread; what its number does after that is done by a new one.
struct ThreadEnd {
  std::uint32_t thread = 0;
  std::uint32_t window = 0;
  std::uint64_t at = 0;  // thousandths of its group's ticks in the window
};

// One large stay.
struct Scripted {
  enum class Begin : std::uint8_t { kMalloc, kCalloc, kAligned, kFromClass, kFromScript };
  enum class End : std::uint8_t { kFree, kIntoClass, kIntoScript, kNeverFreed };
  std::uint64_t tick = 0;    // at which it begins
  std::uint64_t length = 0;  // ticks from there on, before which it ends
  std::uint64_t size = 0;
  Begin begin = Begin::kMalloc;
  std::uint64_t begin_with = 0;  // alignment, class, or place in the script
  End end = End::kNeverFreed;
  std::uint64_t end_with = 0;  // class, or place in the script
  std::uint32_t thread = 0;
  std::uint32_t end_thread = 0;
  std::uint64_t touched = kNever;  // bytes resident when it was freed; kNever: not known
};

struct Model {
  std::uint64_t ticks = 0;
  std::uint64_t nanoseconds = 0;
  std::uint64_t peak_live = 0;
  std::uint64_t events = 0;
  std::uint64_t allocations = 0;
  std::uint64_t script_from = 0;  // bytes
  std::uint64_t sized_frees = 0;  // of 1000 frees
  std::uint32_t threads = 1;
  bool shared_lengths = false;  // windows do not have their own mixtures of lengths any more
  double stretch = 1;           // of the lengths of brief stays, where the model was scaled
  std::vector<SizeClass> classes;
  std::vector<Window> windows;
  std::vector<Scripted> script;
  std::vector<ThreadEnd> ends;  // by window
};

// One size class of a RandMallocModel.
struct MeanClass {
  std::uint64_t size = 0;      // bytes, the mean
  std::uint64_t count = 0;     // allocations
  std::uint64_t lifetime = 0;  // ticks, the mean
};

// The simpler kind of model, for comparison (rand_malloc.h).
struct RandMallocModel {
  std::uint64_t ticks = 0;
  std::uint64_t nanoseconds = 0;
  std::uint64_t peak_live = 0;  // bytes
  std::uint64_t events = 0;
  std::uint64_t allocations = 0;
  std::vector<MeanClass> classes;
};

}  // namespace heapwright::model
