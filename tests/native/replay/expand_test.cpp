// Making a trace ready for replay: the operations are played here one at a time, by the rules of ops.h, and must come out as the
// trace was. Every order that the rules allow is a schedule; several are drawn at random.
#include "replay/expand.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "../trace/events.h"
#include "replay/ops.h"

namespace heapwright::replay {
namespace {

using trace::Event;
using trace::Kind;

class Given : public trace::EventSource {
 public:
  explicit Given(const std::vector<Event>& events) : events_(events) {}
  const trace::Header& header() const override { return header_; }
  bool next(Event& event) override { return at_ < events_.size() && ((event = events_[at_++]), true); }
  trace::Loss loss() const override { return {}; }

 private:
  const std::vector<Event>& events_;
  std::size_t at_ = 0;
  trace::Header header_;
};

// Plays an operations file, a thread at a time as chance has it.
class Model {
 public:
  Model(const std::string& path, std::uint64_t seed) : random_(seed) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    std::memcpy(&plan_, bytes_.data(), sizeof plan_);
    threads_.resize(plan_.threads);
    for (std::size_t i = 0; i < threads_.size(); i++) {
      std::memcpy(&threads_[i].plan, bytes_.data() + sizeof plan_ + i * sizeof(ThreadPlan),
                  sizeof(ThreadPlan));
    }
    shared_.resize(plan_.shared_slots);
    lane_busy_.resize(plan_.lanes);
    begin(0);
  }

  // False if it comes to a standstill.
  bool run() {
    for (;;) {
      std::vector<std::size_t> able;
      bool left = false;
      for (std::size_t i = 0; i < threads_.size(); i++) {
        left = left || threads_[i].running;
        if (threads_[i].running && can(threads_[i])) {
          able.push_back(i);
        }
      }
      if (able.empty()) {
        return !left;
      }
      step(threads_[able[random_() % able.size()]]);
    }
  }

  std::uint64_t calls = 0;
  std::uint64_t live = 0;
  std::uint64_t peak = 0;
  const Plan& plan() const { return plan_; }

 private:
  struct Slot {
    bool full = false;
    std::uint64_t size = 0;
    std::uint32_t turn = 0;
  };
  struct Thread {
    ThreadPlan plan;
    bool running = false;
    bool ended = false;
    std::uint64_t chunk = 0;
    std::size_t at = 0;
    std::uint64_t epoch = 0;
    std::uint64_t parts = 0;
  };

  void begin(std::size_t thread) {
    EXPECT_FALSE(lane_busy_[threads_[thread].plan.lane]);
    lane_busy_[threads_[thread].plan.lane] = true;
    threads_[thread].running = true;
    threads_[thread].chunk = threads_[thread].plan.chunk;
  }
  Word look(const Thread& thread, std::size_t ahead = 0) const {
    Word found = 0;
    std::memcpy(
        &found,
        bytes_.data() + plan_.first_chunk + thread.chunk * kChunkBytes + (thread.at + ahead) * sizeof(Word),
        sizeof found);
    return found;
  }
  bool can(const Thread& thread) const {
    const Word w = look(thread);
    if (op_of(w) == kEpoch) {
      return thread.parts > 0 || argument_of(w) == epoch_;  // leaving is never waited for, entering is
    }
    if (op_of(w) == kSpawn) {
      return !lane_busy_[threads_[argument_of(w)].plan.lane];
    }
    if (op_of(w) == kJoin) {
      return threads_[argument_of(w)].ended;
    }
    bool shared = false;
    std::uint64_t turn = 0;
    std::size_t ahead = 0;
    for (; op_of(look(thread, ahead)) >= kTouch && op_of(look(thread, ahead)) <= kShared; ahead++) {
      if (op_of(look(thread, ahead)) == kShared) {
        shared = true;
        turn = argument_of(look(thread, ahead));
      }
    }
    return !shared || shared_[slot_of(look(thread, ahead))].turn == turn;
  }
  void leave(Thread& thread) {
    if (thread.parts > 0 && ++arrived_ == thread.parts) {
      arrived_ = 0;
      epoch_++;
    }
    thread.parts = 0;
  }
  void step(Thread& thread) {
    std::uint64_t upper = 0;
    bool shared = false;
    Word w = look(thread);
    if (op_of(w) == kEpoch && thread.parts > 0) {
      leave(thread);
      return;  // and waits for the new one
    }
    while (op_of(w) >= kTouch && op_of(w) <= kShared) {
      upper = op_of(w) == kWide ? argument_of(w) << 32 : upper;
      shared = shared || op_of(w) == kShared;
      thread.at++;
      w = look(thread);
    }
    thread.at++;
    EXPECT_LE(thread.at, kChunkWords);
    const std::uint64_t size = upper | argument_of(w);
    switch (op_of(w)) {
      case kNext:
        thread.chunk = argument_of(w);
        thread.at = 0;
        return;
      case kEpoch:
        thread.parts = slot_of(w);
        thread.epoch = argument_of(w);
        EXPECT_EQ(thread.epoch, epoch_);
        return;
      case kSpawn:
        begin(argument_of(w));
        return;
      case kJoin:
      case kSample:
        return;
      case kEnd:
        leave(thread);
        thread.running = false;
        thread.ended = true;
        if (thread.plan.ends != 0) {
          EXPECT_EQ(argument_of(w), 1U);
          lane_busy_[thread.plan.lane] = false;
        }
        return;
      default:
        break;
    }
    calls++;
    Slot& slot = shared ? shared_[slot_of(w)] : own_[{thread.plan.lane, slot_of(w)}];
    const bool dummy = !shared && slot_of(w) == 0;
    if (op_of(w) == kMalloc || op_of(w) == kCalloc || op_of(w) == kAligned) {
      EXPECT_TRUE(!slot.full || dummy);
      thread.at += op_of(w) == kAligned ? 1 : 0;
      slot.full = true;
      slot.size = size;
      live += size;
    } else {
      EXPECT_TRUE(slot.full && !dummy);
      if (op_of(w) == kRealloc) {
        thread.at++;
        live += size - slot.size;
        slot.size = size;
      } else if (op_of(w) == kFree || op_of(w) == kFreeSized) {
        slot.full = false;
        live -= slot.size;
      }
    }
    slot.turn++;
    peak = std::max(peak, live);
  }

  std::mt19937_64 random_;
  std::string bytes_;
  Plan plan_;
  std::vector<Thread> threads_;
  std::vector<Slot> shared_;
  std::map<std::pair<std::uint32_t, std::uint64_t>, Slot> own_;
  std::vector<bool> lane_busy_;
  std::uint64_t epoch_ = 0;
  std::uint64_t arrived_ = 0;
};

class Expand : public ::testing::Test {
 protected:
  ~Expand() override { (void)std::remove(path_.c_str()); }
  Expanded expand_events(const std::vector<Event>& events) {
    Expanded done;
    std::string error;
    const auto open = [&events](std::string&) { return std::make_unique<Given>(events); };
    EXPECT_TRUE(expand(open, path_, done, error)) << error;
    return done;
  }
  std::string path_ = ::testing::TempDir() + "ops." + std::to_string(::getpid());
};

// Threads that come and go: a thread's start first, its end last.
std::vector<Event> with_threads(std::uint64_t seed, std::size_t count, std::uint32_t threads) {
  std::vector<Event> events = trace::random_events(seed, count, threads);
  std::mt19937_64 random(seed);
  std::erase_if(events,
                [](const Event& e) { return e.kind == Kind::kThreadStart || e.kind == Kind::kThreadEnd; });
  for (std::size_t i = 0; i < events.size(); i++) {  // threads live one after the other, a few at a time
    const std::uint64_t first = i * threads / events.size();
    events[i].thread = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads - 1, first + random() % 3));
    events[i].size %= 1 << 20;
  }
  std::map<std::uint32_t, std::size_t> last;
  for (std::size_t i = 0; i < events.size(); i++) {
    last[events[i].thread] = i;
  }
  std::vector<Event> out;
  std::set<std::uint32_t> seen;
  for (std::size_t i = 0; i < events.size(); i++) {
    Event mark;
    mark.thread = events[i].thread;
    mark.time = events[i].time;
    if (seen.insert(mark.thread).second && mark.thread != 0) {
      mark.kind = Kind::kThreadStart;
      out.push_back(mark);
    }
    out.push_back(events[i]);
    if (last[mark.thread] == i && mark.thread % 4 != 3) {
      mark.kind = Kind::kThreadEnd;
      out.push_back(mark);
    }
  }
  return out;
}

TEST_F(Expand, EveryScheduleReplaysTheTrace) {
  for (std::uint64_t seed = 1; seed < 30; seed++) {
    const auto events = with_threads(seed, 4000, 1 + static_cast<std::uint32_t>(seed % 9));
    const Expanded done = expand_events(events);
    EXPECT_EQ(done.dropped, 0U);
    std::uint64_t live = 0;
    std::map<std::uint64_t, std::uint64_t> sizes;
    std::uint64_t calls = 0;
    for (const Event& event : events) {
      if (makes(event.kind) || event.kind == Kind::kRealloc) {
        live += event.size - sizes[event.object];
        sizes[event.object] = event.size;
      } else if (ends(event.kind)) {
        live -= sizes[event.object];
      }
      calls += event.kind <= Kind::kUsableSize ? 1 : 0;
    }
    EXPECT_EQ(done.events, calls);
    for (std::uint64_t schedule = 0; schedule < 3; schedule++) {
      Model model(path_, seed * 10 + schedule);
      EXPECT_TRUE(model.run()) << "standstill, seed " << seed;
      EXPECT_EQ(model.calls, calls);
      EXPECT_EQ(model.live, live);
      // Threads drift apart by an epoch at most.
      EXPECT_LE(model.peak, done.peak_live_bytes +
                                std::max<std::uint64_t>(done.peak_live_bytes / 256, 64 << 10) + (1 << 20));
    }
  }
}

TEST_F(Expand, OneThreadNeedsNoOrder) {
  const Expanded done = expand_events(trace::random_events(1, 20000, 1));
  EXPECT_EQ(done.epochs, 1U);
  EXPECT_EQ(done.shared_slots, 0U);
  Model model(path_, 1);
  EXPECT_TRUE(model.run());
  EXPECT_EQ(model.calls, done.events);
}

// Two threads that free what they make at every turn: however much they ask for in all, they cannot get ahead of each other.
TEST_F(Expand, WhatIsSteadyDoesNotDrift) {
  std::vector<Event> events;
  std::uint64_t made = 0;
  for (std::uint32_t i = 0; i < 100'000; i++) {
    Event event;
    event.thread = i / 2 % 2;
    event.time = i * 1000;
    event.kind = i % 2 == 0 ? Kind::kMalloc : Kind::kFree;
    event.object = event.kind == Kind::kMalloc ? made++ : made - 1;
    event.size = event.kind == Kind::kMalloc ? 4096 : 0;
    events.push_back(event);
  }
  const Expanded done = expand_events(events);
  EXPECT_LE(done.epochs, events.size() / 4096 + 2 * 500 + 2);  // and 500 readings of memory
  Model model(path_, 1);
  EXPECT_TRUE(model.run());
  EXPECT_LE(model.peak, done.peak_live_bytes + (64 << 10));
}

TEST_F(Expand, LanesAreHandedOn) {
  std::vector<Event> events;
  for (std::uint32_t thread = 1; thread <= 50; thread++) {
    for (const Kind kind : {Kind::kThreadStart, Kind::kMalloc, Kind::kFree, Kind::kThreadEnd}) {
      Event event;
      event.kind = kind;
      event.thread = thread;
      event.object = kind == Kind::kMalloc || kind == Kind::kFree ? thread - 1 : 0;
      events.push_back(event);
    }
  }
  EXPECT_EQ(expand_events(events).lanes, 2U);
}

TEST_F(Expand, SlotsAreAsManyAsLiveAtOnce) {
  std::vector<Event> events;
  for (std::uint64_t object = 0; object < 10000; object++) {
    Event event;
    event.object = object;
    event.size = 10;
    events.push_back(event);
    if (object >= 10) {
      event.kind = Kind::kFree;
      event.object = object - 10;
      events.push_back(event);
    }
  }
  EXPECT_LE(expand_events(events).own_slots, 12U);
}

}  // namespace
}  // namespace heapwright::replay
