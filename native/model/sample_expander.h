// Makes a complete trace of a sample (docs/trace-format.md). Each sampled object stands for as many
// objects as its weight says: the expander adds copies of it. Live bytes are then at every moment
// the weighted estimate of those of the program.
//
// The expander works on one block of the sample (sample_block.h) at a time:
//   1. It chooses how many copies each object gets: its weight, rounded at random so that sums are
//      right. It first adjusts the weights of a block to the number of ticks of the block, which is
//      known, if few of them are reallocs. Objects of weight 1 get no copy.
//   2. It spreads the allocations and resizes of the copies over the ticks of the block that are
//      not of sampled objects: first over those of the object's thread, then over those of others.
//      Copies of objects with neighbouring ticks are mixed, as in the program. A tick that is left
//      gets a small object that is freed at once.
//   3. Copies of neighbouring objects exchange their objects (sample_exchange.h).
//   4. A copy is freed
//      - when its object is, if it was allocated for another one;
//      - as many ticks of its thread after its allocation as the object, if these are few;
//      - otherwise when the object is, but spread over half the distance to the nearest other free
//        of a long-lived object in the sample. So a burst of frees stays a burst.
//
// A block is expanded when the next one has been read, because the copies of an object may be freed
// before the object is. Memory grows with the live objects of the expanded trace.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "sample_block.h"
#include "sample_copies.h"
#include "sample_exchange.h"
#include "trace/event.h"
#include "trace/live_table.h"
#include "trace/pending_events.h"

namespace heapwright::model {

class SampleExpander : public trace::EventSource {
 public:
  // sample  the trace; a complete one comes out as it is
  // seed    of the copies
  SampleExpander(std::unique_ptr<trace::EventSource> sample, std::uint64_t seed);
  SampleExpander(const SampleExpander&) = delete;  // exchange_ refers to other members
  SampleExpander& operator=(const SampleExpander&) = delete;

  const trace::Header& header() const override { return header_; }
  trace::Loss loss() const override { return sample_->loss(); }
  bool next(trace::Event& event) override;

 private:
  struct Thread {
    std::uint64_t ticks = 0;
    std::uint64_t time = 0;  // nanoseconds, of its last event
    bool started = false;
    bool ended = false;
    Deadlines scheduled_frees;  // of copies, by its ticks
    // Of the block under way: copies' allocations and resizes, and the thread's slots.
    std::vector<Token> tokens;
    std::size_t next_token = 0;
    std::uint64_t slots = 0;
    std::uint64_t slots_used = 0;
    bool active = false;
    bool takes_moved = false;  // it has no more tokens than slots
    std::int64_t ahead = 0;    // ticks that it has made more than the program, so far
  };

  void read_ahead();
  void note(SampleBlock& block);
  void note_frees(SampleBlock& block);
  void note_free(const SampleItem& item, const ScheduledFree& scheduled);
  ScheduledFree free_of(const Sampled& object, const SampleItem& item, std::uint64_t threads) const;
  void expand_block();
  void add_tokens();
  void grow(Sampled& object, const SampleItem& item);
  void unlist(Copy& copy);
  void add_copies(std::uint32_t index, std::uint64_t count, double place);
  void merge_resizes(std::uint64_t surplus);
  void share_tokens();
  void give_away(std::uint64_t moving, std::uint64_t over);
  static std::uint64_t surplus_of(const Thread& thread);
  Thread& activate(std::uint32_t thread);
  void run_block();
  void run_slot(const Slot& slot, std::uint64_t time);
  void run_token(const Token& token, std::uint32_t thread, std::uint64_t time);
  void run_item(const SampleItem& item);
  void end_thread(std::uint32_t thread, std::uint64_t time);
  void advance(Thread& thread, std::int64_t ticks);
  void catch_up(std::uint32_t thread, std::int64_t behind, std::uint64_t time);
  void fill(std::uint32_t number, std::uint64_t time);
  void free_due(Deadlines& frees, std::uint64_t until, std::uint32_t thread, std::uint64_t time);
  void run_frees(std::uint32_t thread, std::uint64_t time);
  void finish();
  void schedule(std::uint32_t copy, const ScheduledFree& scheduled);
  void free_copy(std::uint32_t copy, std::uint32_t thread, std::uint64_t time);
  void end_block();
  void put_use(const SampleItem& item, Sampled& object);
  std::uint32_t running(std::uint32_t wanted, std::uint32_t otherwise) const;
  void put(trace::Event event, std::uint32_t thread, std::uint64_t time);
  Thread& thread_of(std::uint32_t thread);
  double uniform() {
    return static_cast<double>(bits_() >> 11) / static_cast<double>(std::uint64_t{1} << 53);
  }

  std::unique_ptr<trace::EventSource> sample_;
  trace::Header header_;
  std::uint64_t rate_;
  SampleBlockReader reader_;
  std::mt19937_64 bits_;
  std::vector<Thread> threads_;
  Pool<Sampled> sampled_;
  trace::LiveTable<std::uint32_t> numbers_;  // object of the sample → index in sampled_
  Pool<Copy> copies_;
  Deadlines scheduled_frees_;  // of copies, by moment
  SampleBlock block_;
  SampleBlock ahead_;
  bool has_ahead_ = false;
  bool finished_ = false;
  std::uint64_t last_long_free_ = 0;  // moment
  std::vector<Token> moved_;          // tokens for threads that have ticks to spare
  std::size_t next_moved_ = 0;
  std::uint64_t spare_ = 0;             // slots that their threads have no tokens for
  std::uint64_t spare_used_ = 0;        // of these
  std::vector<std::uint32_t> active_;   // threads with slots or tokens in the block
  std::vector<std::uint32_t> changed_;  // sampled objects that are allocated or resized in the block
  std::vector<std::uint32_t> ended_;    // sampled objects that are freed in the block
  std::uint64_t deadlines_ = 0;         // schedules so far
  std::uint64_t position_ = 0;
  std::uint64_t order_ = 0;          // of the last item, since the last tick
  std::uint64_t time_ = 0;           // of the last item
  std::uint64_t objects_ = 0;        // made so far
  std::uint64_t filler_ = 16;        // bytes
  std::int64_t ahead_of_ticks_ = 0;  // of all threads
  double dropping_ = 0.5;            // of copies: superfluous by growth, not dropped yet
  SampleExchange exchange_;
  double rounding_;  // of weights: no copy stands for it yet
  trace::PendingEvents pending_;
};

}  // namespace heapwright::model
