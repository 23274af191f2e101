// Counts the events and bytes of a trace in one pass, for `heapwright info`. Memory grows with the
// number of live objects and of threads, not with the number of events.
//
// A tick is one request for memory: an allocation or a realloc. Lifetimes are counted in ticks, as
// in models, because that clock runs the same on every machine.
//
// Lower bounds. Live blocks do not overlap and do not move. So at any moment an allocator holds at
// least the bytes that the program has requested. If each block is on a boundary of 16 bytes, which
// malloc promises for any type, it holds at least the sum of the sizes rounded up to 16. (An
// allocator may give blocks of 8 bytes or less a weaker alignment and save memory there.) These
// bytes lie in whole pages, so it holds at least that sum rounded up to pages. No allocator can be
// below these bounds. Whether one can reach them is another question, because an allocator that
// cannot move blocks cannot close every hole. Resident memory can be below the bounds if the
// program does not touch all memory that it requests.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "trace/event.h"
#include "trace/live_table.h"

namespace heapwright::model {

inline constexpr std::uint64_t kGranule = 16;  // the assumed alignment of every block
using trace::kLargeBlock;

// The size of a block if it is large, otherwise 0.
constexpr std::uint64_t large_part(std::uint64_t size) { return size < kLargeBlock ? 0 : size; }

// Bin of a number: 0 for 0, else 1 + floor(log2 n), so bin b > 0 holds [2^(b-1), 2^b).
constexpr unsigned log_bin(std::uint64_t n) {
  unsigned bin = 0;
  for (; n != 0; n >>= 1) {
    ++bin;
  }
  return bin;
}
constexpr std::uint64_t bin_low(unsigned bin) { return bin == 0 ? 0 : std::uint64_t{1} << (bin - 1); }

// The bytes that a block takes of an allocator that aligns to 16 bytes. malloc(0) takes a granule
// too, because its pointer must be unique.
constexpr std::uint64_t rounded(std::uint64_t size) {
  return size <= kGranule ? kGranule : (size + kGranule - 1) / kGranule * kGranule;
}

struct Amount {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  void add(std::uint64_t size, std::uint64_t times = 1) {
    count += times;
    bytes += size * times;
  }
};
using Histogram = std::array<Amount, 65>;

// Live bytes over the trace, in at most kPoints points of equally many events (of a sample:
// recorded ones). When it has more, neighbours are merged.
class Curve {
 public:
  static constexpr std::size_t kPoints = 512;
  struct Point {
    std::uint64_t time = 0;  // nanoseconds, of its last event
    std::uint64_t live = 0;  // bytes, after its last event
    std::uint64_t peak = 0;  // bytes, the maximum within the point
    std::uint64_t events = 0;
  };
  // events  that this one stands for
  void add(std::uint64_t time, std::uint64_t live, std::uint64_t events = 1);
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
  std::uint64_t added_ = 0;  // to the last point
  std::uint64_t width_ = 1;  // so many are added to a full point
};

struct ThreadCounts {
  std::uint64_t events = 0;
  std::uint64_t allocations = 0;
  std::uint64_t frees = 0;
  std::uint64_t remote_frees = 0;  // of blocks that another thread allocated or last resized
  std::uint64_t bytes = 0;         // requested
  std::uint64_t first = 0;         // nanoseconds
  std::uint64_t last = 0;
};

// A reading of the process's resident memory with its parts, in bytes.
struct Reading {
  std::uint64_t time = 0;  // nanoseconds
  std::uint64_t resident = 0;
  std::uint64_t live = 0;  // requested
  std::optional<std::uint64_t> files;
  std::optional<std::uint64_t> heap;       // malloc's
  std::optional<std::uint64_t> untouched;  // of live large blocks; known if `heap` is
};

// Readings of resident memory over the trace, at most kPoints of them: when there are more, every
// second one is dropped, but of two neighbours one with malloc's part stays.
class ResidentCurve {
 public:
  static constexpr std::size_t kPoints = 1024;
  void add(const Reading& reading);
  const std::vector<Reading>& points() const { return points_; }

 private:
  std::vector<Reading> points_;
  std::uint64_t every_ = 1;  // so many readings for a point
  std::uint64_t waiting_ = 0;
};

// How often an event of a sample counts. An event of a complete trace counts once.
struct Multiplicity {
  std::uint64_t objects = 1;
  std::uint64_t ticks = objects;  // fewer if objects are resized several times in one tick
  // Of a free, in ticks. Without it Statistics counts the ticks since the allocation.
  std::optional<std::uint64_t> lifetime = std::nullopt;
};

class Statistics {
 public:
  // rate  of the sample; 0: the trace is complete
  explicit Statistics(std::uint64_t page_size = trace::kUnstatedPageBytes, std::uint64_t rate = 0)
      : page_size_(page_size), live_noise_(rate > 1 ? 1.5 : 1) {}

  void add(const trace::Event& event, const Multiplicity& of = {});
  // Counts the frees of some of the objects that a sampled one stands for, before `event`.
  void free_some(const trace::Event& event, std::uint64_t objects);
  // Counts so many allocations like `allocation`, one after the other, each of which is freed at
  // once.
  void add_freed_at_once(const trace::Event& allocation, std::uint64_t times);

  struct Block {
    std::uint64_t size = 0;
    std::uint64_t tick = 0;     // of its allocation
    std::uint64_t changed = 0;  // the tick of its last allocation or realloc
    std::uint64_t time = 0;
    std::uint32_t thread = 0;  // that allocated or last resized it
    std::uint32_t resizes = 0;
  };

  std::uint64_t events = 0;
  std::array<std::uint64_t, 32> kinds{};
  std::uint64_t ticks = 0;
  std::uint64_t duration = 0;               // nanoseconds, of the last event
  std::uint64_t asked_bytes = 0;            // requested by allocations, and by the growth of reallocs
  std::uint64_t unknown_object_events = 0;  // events of objects that are not live
  Histogram sizes{};                        // of allocations and reallocs
  Histogram lifetimes{};                    // of freed objects, in ticks
  Histogram lifetimes_ns{};
  Histogram chain_lengths{};  // resized objects, by number of reallocs; bytes: their last sizes
  std::map<std::uint64_t, std::uint64_t> alignments;
  Amount remote_frees;
  Amount resized_up;
  Amount resized_down;
  Amount large_freed;  // freed blocks of 64 KiB and more whose touched bytes are known
  std::uint64_t large_touched = 0;
  std::uint64_t largest = 0;  // bytes
  std::uint64_t peak_live = 0;
  std::uint64_t peak_time = 0;
  std::uint64_t peak_event = 0;
  std::uint64_t peak_tick = 0;  // ticks up to the peak, with the tick that reached it
  std::uint64_t peak_objects = 0;
  std::uint64_t peak_rounded = 0;
  std::uint64_t peak_resident = 0;
  // The readings of resident memory with parts: at the peak, at the peak of those with `heap`, the
  // first and the last. Of the readings within 1% of a peak, the one with the most live bytes is
  // kept: malloc may return nothing until the process ends, so that the highest reading comes after
  // the blocks were freed. The live bytes of a sample are estimates, and the most would be those
  // with the largest error. So there a reading replaces another only with `live_noise_` times as
  // many.
  Reading highest;
  Reading highest_with_heap;
  Reading first;
  Reading last;
  // Bytes of large blocks, live at the peak, that are not known to have been resident. All bytes of
  // such a block count, with its size at the peak, until the block or the process ends and the
  // trace tells how many bytes were touched.
  std::uint64_t peak_untouched = 0;
  Curve curve;
  ResidentCurve resident_curve;
  std::vector<ThreadCounts> threads;

  std::uint64_t allocations() const;
  std::uint64_t frees() const;
  std::uint64_t live() const { return live_; }
  // The reading of resident memory that stands for its peak.
  const Reading& peak_reading() const;
  std::uint64_t live_objects() const { return live_objects_; }
  std::uint64_t rounded_live() const { return rounded_; }
  // Averages over time, in bytes; over events if the trace has no times.
  double mean_live() const;
  double mean_rounded() const;
  double mean_pages() const;
  bool has_times() const { return duration > 0; }
  std::uint64_t pages(std::uint64_t bytes) const {
    return (bytes + page_size_ - 1) / page_size_ * page_size_;
  }
  trace::LiveTable<Block>& blocks() { return blocks_; }
  // The most frequently requested sizes, most frequent first: size, count. Exact below 64 KiB;
  // above, only the first 65536 distinct sizes are counted.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> top_sizes(std::size_t limit);

 private:
  struct Mean {
    double live = 0;
    double rounded = 0;
    double pages = 0;
  };
  void pass_time(std::uint64_t time);
  ThreadCounts& count_event(const trace::Event& event, std::uint64_t times);
  void on_alloc(const trace::Event& event, const Multiplicity& of);
  void on_realloc(const trace::Event& event, const Multiplicity& of);
  void on_free(const trace::Event& event, const Multiplicity& of);
  void take_off(const Block& block, std::uint64_t objects);
  void count_size(std::uint64_t size, std::uint64_t times);
  void note_peaks(const trace::Event& event);
  void note_touched(const trace::Event& event, const Block& block, std::uint64_t objects);
  void note_reading(const trace::Event& event);
  void keep_at_peak(Reading& kept, const Reading& now, std::uint64_t peak) const;
  double average(double Mean::* part) const;

  std::uint64_t page_size_;
  double live_noise_;  // live bytes that differ by less than this factor may be equal
  trace::LiveTable<Block> blocks_;
  std::uint64_t live_ = 0;
  std::uint64_t live_objects_ = 0;
  std::uint64_t rounded_ = 0;
  std::uint64_t large_live_ = 0;
  std::uint64_t highest_of_all_ = 0;  // resident bytes of all readings, and of those with `heap`
  std::uint64_t highest_of_heap_ = 0;
  Reading reading_;   // the parts read since the last reading of resident memory
  Mean over_time_;    // byte-nanoseconds
  Mean over_events_;  // byte-events
  std::vector<std::uint64_t> small_sizes_ = std::vector<std::uint64_t>(kLargeBlock);
  trace::LiveTable<std::uint64_t> large_sizes_;
};

}  // namespace heapwright::model
