// Tests making a trace ready for replay. The tests play the operations one at a time by the rules
// of ops.h, and compare with the trace. Every order that the rules allow is a schedule; the tests
// draw several at random.
#include "replay/expand.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../trace/events.h"
#include "../trace/vector_source.h"
#include "ops_model.h"

namespace heapwright::replay {
namespace {

using trace::Event;
using trace::Kind;

class Expand : public ::testing::Test {
 protected:
  ~Expand() override { (void)std::remove(path_.c_str()); }
  Expanded expand_events(const std::vector<Event>& events) {
    Expanded done;
    std::string error;
    const auto open = [&events](std::string&) { return std::make_unique<trace::VectorSource>(events); };
    EXPECT_TRUE(expand(open, path_, done, error)) << error;
    return done;
  }
  std::string path_ = ::testing::TempDir() + "ops." + std::to_string(::getpid());
};

// A trace with threads that start and end. The first event of a thread is its start, the last one
// its end. Some starts have the creation by another thread before them.
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
      if (!out.empty() && random() % 2 == 0 && out.back().kind != Kind::kThreadEnd) {
        mark.kind = Kind::kSpawn;
        mark.value = std::exchange(mark.thread, out.back().thread);
        out.push_back(mark);
        mark.thread = static_cast<std::uint32_t>(mark.value);
      }
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
      if (is_allocation(event.kind) || event.kind == Kind::kRealloc) {
        live += event.size - sizes[event.object];
        sizes[event.object] = event.size;
      } else if (is_free(event.kind)) {
        live -= sizes[event.object];
      }
      calls += event.kind <= Kind::kUsableSize ? 1 : 0;
    }
    EXPECT_EQ(done.events, calls);
    for (std::uint64_t schedule = 0; schedule < 3; schedule++) {
      ReplayModel model(path_, seed * 10 + schedule);
      EXPECT_EQ(model.run(), "") << "seed " << seed;
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
  ReplayModel model(path_, 1);
  EXPECT_EQ(model.run(), "");
  EXPECT_EQ(model.calls, done.events);
}

// The program fills a block while it has others. Each step touches the part that the program touched
// before the next observation.
TEST_F(Expand, ABlockIsTouchedInSteps) {
  const auto at = [](Kind kind, std::uint64_t object, std::uint64_t size, std::uint64_t touched) {
    Event event;
    event.kind = kind;
    event.object = object;
    event.size = size;
    event.touched = touched;
    return event;
  };
  const Expanded done = expand_events({
      at(Kind::kMalloc, 0, 1 << 20, trace::kUnknown),
      at(Kind::kTouchedSoFar, 0, 0, 4096),
      at(Kind::kTouchedSoFar, 0, 0, 4096),  // nothing more
      at(Kind::kTouchedSoFar, 0, 0, 65536),
      at(Kind::kFree, 0, 0, 1 << 19),
  });
  EXPECT_EQ(done.events, 2U);
  ReplayModel model(path_, 1);
  EXPECT_EQ(model.run(), "");
  EXPECT_EQ(model.calls, 2U);
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> fills = {{4096, 65536}, {65536, 1 << 19}};
  EXPECT_EQ(model.fills, fills);
}

// Two threads allocate a block and free it, again and again. However many bytes they allocate in
// all, neither can get ahead.
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
  ReplayModel model(path_, 1);
  EXPECT_EQ(model.run(), "");
  EXPECT_LE(model.peak, done.peak_live_bytes + (64 << 10));
}

// The clock that the allocator sees follows the recorded times, and does not go back.
TEST_F(Expand, ClockFollowsRecordedTimes) {
  std::vector<Event> events;
  for (std::uint32_t i = 0; i < 1000; i++) {
    Event event;
    event.time = std::uint64_t{i} * 1'000'000 + (i >= 500 ? 10'000'000'000 : 0);
    event.object = i;
    events.push_back(event);
  }
  expand_events(events);
  ReplayModel model(path_, 1);
  EXPECT_EQ(model.run(), "");
  EXPECT_EQ(model.clock, events.back().time);
  EXPECT_GE(model.clock_steps, 990U);
}

// A thread that has ended gives its caches back before the next event of another thread, if there
// is time in between.
TEST_F(Expand, EndedThreadIsJoinedBeforeALaterEvent) {
  std::vector<Event> events;
  const auto add = [&events](Kind kind, std::uint32_t thread, std::uint64_t time, std::uint64_t object) {
    Event event;
    event.kind = kind;
    event.thread = thread;
    event.time = time;
    event.object = object;
    events.push_back(event);
  };
  add(Kind::kMalloc, 0, 0, 0);
  add(Kind::kThreadStart, 1, 1'000, 0);
  add(Kind::kMalloc, 1, 2'000, 1);
  add(Kind::kThreadEnd, 1, 3'000, 0);
  add(Kind::kFree, 0, 10'000'000, 0);
  expand_events(events);
  ReplayModel model(path_, 1);
  EXPECT_EQ(model.run(), "");
  EXPECT_EQ(model.joins_before_last_call, 1U);
}

// libc allocates memory for a new thread in the thread that creates it. So the creator starts it,
// at the place where the program did.
TEST_F(Expand, ThreadsAreStartedByTheirCreator) {
  std::vector<Event> events;
  const auto add = [&events](Kind kind, std::uint32_t thread, std::uint64_t object, std::uint64_t value) {
    Event event;
    event.kind = kind;
    event.thread = thread;
    event.object = object;
    event.value = value;
    events.push_back(event);
  };
  add(Kind::kMalloc, 0, 0, 0);
  add(Kind::kSpawn, 0, 0, 1);
  add(Kind::kSpawn, 0, 0, 2);
  add(Kind::kSpawn, 0, 0, 3);  // makes no call: is not started
  add(Kind::kMalloc, 0, 1, 0);
  add(Kind::kMalloc, 1, 2, 0);
  add(Kind::kMalloc, 2, 3, 0);
  add(Kind::kMalloc, 4, 4, 0);  // nobody knows who created it: the previous thread starts it
  expand_events(events);
  ReplayModel model(path_, 1);
  EXPECT_EQ(model.run(), "");
  ASSERT_EQ(model.starts.size(), 3U);
  for (const std::uint64_t thread : {1U, 2U}) {
    EXPECT_EQ(model.starts[thread - 1].thread, thread);
    EXPECT_EQ(model.starts[thread - 1].by, 0U);
    EXPECT_EQ(model.starts[thread - 1].calls, 1U);
  }
  EXPECT_EQ(model.starts[2].by, 2U);
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

// Thread 0 joins a thread and gives its lane to thread 4, which ends too. Thread 1 then starts
// thread 7. If all this is in one epoch, thread 7 must not get that lane before thread 4: thread 7
// never ends, and thread 4 would wait forever.
TEST_F(Expand, ALaneIsHandedOnByWhoWaitedForIt) {
  constexpr Kind kBegins = Kind::kThreadStart;
  constexpr Kind kActs = Kind::kPhase;
  constexpr Kind kEnds = Kind::kThreadEnd;
  std::vector<Event> events;
  for (const auto& [thread, kind] : std::vector<std::pair<std::uint32_t, Kind>>{{0, kBegins},
                                                                                {1, kBegins},
                                                                                {0, kActs},
                                                                                {2, kBegins},
                                                                                {0, kActs},
                                                                                {3, kBegins},
                                                                                {2, kEnds},
                                                                                {3, kEnds},
                                                                                {0, kActs},
                                                                                {4, kBegins},
                                                                                {0, kActs},
                                                                                {5, kBegins},
                                                                                {4, kEnds},
                                                                                {5, kEnds},
                                                                                {0, kActs},
                                                                                {6, kBegins},
                                                                                {1, kActs},
                                                                                {7, kBegins}}) {
    Event event;
    event.thread = thread;
    event.kind = kind;
    events.push_back(event);
  }
  expand_events(events);
  for (std::uint64_t schedule = 0; schedule < 50; schedule++) {
    EXPECT_EQ(ReplayModel(path_, schedule).run(), "");
  }
}

// A trace from another tool may leave out thread numbers.
TEST_F(Expand, ThreadsThatNeverAppearAreNotWaitedFor) {
  std::vector<Event> events(2);
  events[1].thread = 3;
  events[1].object = 1;
  EXPECT_EQ(expand_events(events).threads, 4U);
  ReplayModel model(path_, 1);
  EXPECT_EQ(model.run(), "");
}

// The memory that libstdc++ keeps for exceptions is an allocation that a replay may leave out.
TEST_F(Expand, TheExceptionPoolIsMarked) {
  const auto first_call = [this](std::uint64_t size, bool freed) {
    std::vector<Event> events(1);
    events[0].size = size;
    if (freed) {
      events.emplace_back();
      events[1].kind = Kind::kFree;
    }
    expand_events(events);
    ReplayModel model(path_, 1);
    EXPECT_EQ(model.run(), "");
    EXPECT_EQ(model.calls, events.size());
    return model.first_call;
  };
  EXPECT_EQ(first_call(72704, false), kAligned);
  EXPECT_EQ(first_call(73728, false), kAligned);
  EXPECT_EQ(first_call(72704, true), kMalloc);
  EXPECT_EQ(first_call(72705, false), kMalloc);
}

// jemalloc believes the size, and a wrong one corrupts its memory.
TEST_F(Expand, OnlyRightSizesAreGivenToSizedFrees) {
  const auto sized_frees = [this](Kind how, std::uint64_t size, std::uint64_t size_of_free) {
    std::vector<Event> events(2);
    events[0].kind = how;
    events[0].size = size;
    events[0].alignment = how == Kind::kAligned ? 64 : 0;
    events[1].kind = Kind::kFreeSized;
    events[1].size = size_of_free;
    expand_events(events);
    ReplayModel model(path_, 1);
    EXPECT_EQ(model.run(), "");
    EXPECT_EQ(model.calls, 2U);
    return model.sized_frees;
  };
  EXPECT_EQ(sized_frees(Kind::kMalloc, 100, 100), 1U);
  EXPECT_EQ(sized_frees(Kind::kCalloc, 100, 100), 1U);
  EXPECT_EQ(sized_frees(Kind::kMalloc, 100, 101), 0U);
  EXPECT_EQ(sized_frees(Kind::kAligned, 100, 100), 0U);
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
