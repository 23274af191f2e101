// Cuts a sample into blocks, and lays out the ticks of each block that belong to objects outside
// the sample. The expander (sample_expander.h) turns one block at a time into events.
//
// A place is a point in a block: item i has the place i + 1, and a slot between two items has a
// place between theirs. A position is a point in the whole trace: the number of ticks of all
// threads before it.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/event.h"

namespace heapwright::model {

// An event of the sample, other than kTicks.
struct SampleItem {
  trace::Event event;
  std::uint64_t tick = 0;      // ticks of its thread before it
  std::uint64_t position = 0;  // ticks of all threads before it
  std::uint64_t order = 0;     // items since the last tick, below kOrders
  // Orders all items and ticks of the trace. A burst of frees is at one position, but its items
  // have moments of their own.
  std::uint64_t moment() const { return position * kOrders + order; }

  static constexpr std::uint64_t kOrders = std::uint64_t{1} << 20;
};

// Ticks of objects that are not in the sample.
struct Slot {
  double place = 0;
  std::uint32_t thread = 0;
  std::uint64_t ticks = 1;  // 0: the expander has made this slot, because it needs more than the program's
};

struct SampleBlock {
  std::vector<SampleItem> items;
  std::vector<Slot> slots;  // in order
  std::uint64_t slot_ticks = 0;
  std::uint64_t begin = 0;  // position
  // The objects were live when recording began: their allocations are no ticks.
  bool before_window = false;
};

class SampleBlockReader {
 public:
  // Ticks of sampled objects in a block. Over fewer ticks, the number of sampled ones varies more;
  // over more, the copies of an object are further away from it.
  static constexpr std::uint64_t kSampledTicksPerBlock = 64;

  // source     the sample
  // max_slots  for the ticks that one kTicks reports; if these are more, slots have several ticks
  explicit SampleBlockReader(trace::EventSource& source, std::uint64_t max_slots = kSlotForEachTick);

  static constexpr std::uint64_t kSlotForEachTick = ~std::uint64_t{0};

  // Reads the next block. Returns false at the end.
  bool read(SampleBlock& block);

 private:
  struct Thread {
    std::uint64_t ticks = 0;    // so far
    std::uint64_t sampled = 0;  // of these, by events since the last kTicks
    std::uint64_t block = 0;    // number of the block that `from` is of
    double from = 0;            // place from which on the next kTicks counts
  };

  bool next(trace::Event& event);
  Thread& thread_of(std::uint32_t thread);
  void add_slots(SampleBlock& block, const trace::Event& ticks);
  void add_item(SampleBlock& block, const trace::Event& event);
  void number(SampleBlock& block);

  trace::EventSource& source_;
  std::uint64_t max_slots_;
  trace::Event rest_;  // ticks that the block before had no room for
  std::vector<Thread> threads_;
  std::uint64_t block_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t order_ = 0;
  bool before_window_;
};

}  // namespace heapwright::model
