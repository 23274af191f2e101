// Defines the windows model: a statistical summary of a trace, window by window, from which a
// similar trace can be generated. docs/synth.md describes it for users, model_json.h writes and
// reads it.
//
// Terms:
//   tick        an allocation or a realloc that succeeded; the first has number 0
//   lifetime    the time of a block from its allocation or realloc to its next realloc or its free.
//               A realloc ends one lifetime and begins another. Some never end.
//   group       threads that are counted together (group_of())
//   class       a range of sizes, requested by threads of one group
//   window      a range of ticks. Windows are equal shares of all ticks, cut further at the peak of
//               live bytes and near the ends of threads. The largest bursts of frees between two
//               ticks have windows of their own, without ticks.
//   turn        ticks of one group in a row, without a tick of another group between them
//   script      the lifetimes of the largest blocks. They are few and are kept one by one. Of the
//               counts of windows and classes, only ticks include them.
//
// For each window and class the model counts
//   - brief lifetimes: they begin and end in the window; by log2 of their length in ticks
//   - long lifetimes: they begin in the window and outlive it
//   - old lifetimes that end: long ones of earlier windows; by log2 of their age in windows
// So the number of live blocks of a class is known exactly at every border of two windows, and does
// not depend on the events that are drawn in between.
//
//     window    │    0    │    1    │    2    │ ...
//     lifetimes  ├──┤ ├──────────────────┤
//                 │         long; its end in window 2 is one of an old lifetime, of age 2
//               brief
//
// Threads often take turns: while one allocates and frees, the others do nothing. So each group of
// threads has its own clock, which counts the ticks of the group. The length of a brief lifetime is
// in ticks of the group that began it. Positions in a window, such as ends of old lifetimes, are in
// ticks of the group that acts; of all groups if it has too few (has_clock()). The generator
// interleaves the groups so that the number of turns is right. Times of the script are in ticks of
// all groups.
//
//     all ticks    0 1 2 3 4 5 6 7 8 9
//     clock of A   0 1 2       3 4         a lifetime of A may last 3 of its own ticks, whatever
//     clock of B         0 1 2     3 4     B does meanwhile
//
// fit.h fits a model to a trace, in two passes. windows_source.h draws events from a model.
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
// Groups of threads. Thread 8 shares a group with thread 1, 9 with 2 …; none shares with thread 0,
// which is mostly the main thread.
inline constexpr std::uint32_t kGroups = 8;
// The last bin of brief lifetimes is no length: it counts lifetimes whose lengths are distributed
// as in SizeClass::brief.
inline constexpr unsigned kAsClass = kLifeBins - 1;
inline constexpr std::uint64_t kNever = ~std::uint64_t{0};  // unknown, or never

// Rounds a computed count.
inline std::uint64_t whole(double value) { return static_cast<std::uint64_t>(std::llround(value)); }

constexpr std::uint32_t group_of(std::uint32_t thread) {
  return thread < kGroups ? thread : 1 + (thread - 1) % (kGroups - 1);
}

// Brief lifetimes of similar length.
struct Lengths {
  std::uint32_t bin = 0;
  std::uint64_t count = 0;
  std::uint64_t at = 500;  // the mean of their lengths, in thousandths from 2^bin to 2^(bin+1)
};

struct SizeClass {
  // Sizes and how often each was requested. Rare sizes are merged at their mean.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> sizes;
  std::uint64_t callocs = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> alignments;  // alignment, count
  // Of 1000 ends of old lifetimes of the class: `in_order` end the block that was allocated next
  // after the one that ended before, `in_reverse` the block that was allocated next before it.
  std::uint64_t in_order = 0;
  std::uint64_t in_reverse = 0;
  // Touched bytes per 1000 bytes of blocks of 64 KiB and more; kNever if unknown.
  std::uint64_t touched = kNever;
  std::vector<std::pair<std::uint32_t, std::uint64_t>>
      threads;                  // that begin its lifetimes: thread, count; never empty
  std::vector<Lengths> brief;   // brief lifetimes of all windows; each bin at most once
  std::uint64_t freed_own = 0;  // frees by the thread that began the lifetime
  std::vector<std::pair<std::uint32_t, std::uint64_t>> freed_by;  // frees by other threads: thread, count
  // Variances of the estimated number of its lifetimes and of their bytes. Only of a sample.
  double count_variance = 0;
  double bytes_variance = 0;
  std::uint32_t group = 0;  // of its threads; only classes of one group are merged (not in the JSON)
};

// Adds the variance of the estimates that one lifetime of a class causes if it is in the sample
// with this chance. Its weight is then w = 1 / chance, so the expected w (w - 1) is w - 1.
inline void add_variance(SizeClass& c, double chance, std::uint64_t size) {
  const double variance = 1 / chance - 1;
  c.count_variance += variance;
  c.bytes_variance += variance * static_cast<double>(size) * static_cast<double>(size);
}

// The lifetimes of one class in one window.
struct ClassActivity {
  std::uint64_t long_count = 0;  // lifetimes that outlive the window
  std::uint64_t long_bytes = 0;  // of these; 0 if the class has one size
  std::array<std::uint64_t, kLifeBins> brief{};
  std::array<std::uint64_t, kAgeBins> old{};
  bool empty() const;
  std::uint64_t begins() const;
  std::uint64_t old_ends() const;
  void add(const ClassActivity& other);
};

// The activity of one group of threads in one window.
struct GroupActivity {
  // The effective number of bursts in which the group frees bytes, of brief lifetimes and of old
  // ones: (Σ b)² / Σ b² over the bytes b freed between two ticks. It is high if the group frees
  // each block at a separate time, low if it frees many blocks at once.
  std::uint64_t brief_bursts = 0;
  std::uint64_t old_bursts = 0;
  // The mean positions in the window, in thousandths of the group's ticks: where long lifetimes
  // begin, and where old ones end.
  std::uint64_t long_at = 500;
  std::uint64_t old_at = 500;
  // Bounds of the bytes allocated minus the bytes freed since the window began: the maximum, and
  // the minimum with its sign removed. Both are small if the group frees a block for each one that
  // it allocates.
  std::uint64_t above = 0;
  std::uint64_t below = 0;
  bool operator==(const GroupActivity&) const = default;
};

// Whether a group's own ticks can state positions in a window: not if it frees more than four
// blocks for each that it allocates there. Then the ticks of all groups do.
constexpr bool has_clock(std::uint64_t ticks, std::uint64_t frees) { return ticks > 0 && 4 * ticks >= frees; }

// Lifetimes that one group began and another group freed.
struct RemoteFrees {
  std::uint64_t brief = 0;
  std::uint64_t old = 0;
};

using GroupPair = std::pair<std::uint32_t, std::uint32_t>;

struct Window {
  std::uint64_t ticks = 0;
  std::uint64_t nanoseconds = 0;
  // The effective number of turns: (Σ l)² / Σ l² over their lengths l in ticks.
  std::uint64_t turns = 0;
  std::array<GroupActivity, kGroups + 1>
      parts{};  // by group; the last: only bounds, of all groups together, if there are several
  std::vector<ClassActivity> rows;          // by class
  std::map<GroupPair, RemoteFrees> handed;  // group that begins the lifetimes, group that frees them
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> resizes;  // from class, to class: reallocs
};

// The end of a thread. A new thread that starts later takes over the number.
struct ThreadEnd {
  std::uint32_t thread = 0;
  std::uint32_t window = 0;
  std::uint64_t at = 0;  // thousandths of its group's ticks in the window
};

// One lifetime of the script.
struct Scripted {
  enum class Begin : std::uint8_t { kMalloc, kCalloc, kAligned, kFromClass, kFromScript };
  enum class End : std::uint8_t { kFree, kIntoClass, kIntoScript, kNeverFreed };
  std::uint64_t tick = 0;    // at which it begins, of all ticks
  std::uint64_t length = 0;  // ticks after its own until it ends
  std::uint64_t size = 0;
  Begin begin = Begin::kMalloc;
  std::uint64_t begin_with = 0;  // alignment, class, or index in the script
  End end = End::kNeverFreed;
  std::uint64_t end_with = 0;  // class, or index in the script
  std::uint32_t thread = 0;
  std::uint32_t end_thread = 0;
  std::uint64_t touched = kNever;  // bytes resident when it was freed; kNever if unknown
};

struct Model {
  std::uint64_t ticks = 0;
  std::uint64_t nanoseconds = 0;
  std::uint64_t peak_live = 0;
  std::uint64_t events = 0;
  std::uint64_t allocations = 0;
  std::uint64_t script_from = 0;  // bytes; lifetimes of this size and above may be in the script
  std::uint64_t sized_frees = 0;  // of 1000 frees
  std::uint32_t threads = 1;
  std::uint64_t sample = 0;     // the rate of the sample that it was fitted to; 0: a complete trace
  bool shared_lengths = false;  // brief lifetimes have the same mixture of lengths in all windows
  double stretch = 1;           // factor of the lengths of brief lifetimes, if the model was scaled
  std::vector<SizeClass> classes;
  std::vector<Window> windows;
  std::vector<Scripted> script;
  std::vector<ThreadEnd> ends;  // in order of windows
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
