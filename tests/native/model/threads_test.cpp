// Tests models of programs in which several threads allocate: which thread is next, which objects
// each holds, which thread frees an object, which threads end.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

#include "model/cohort.h"
#include "model/fit.h"
#include "model/merge.h"
#include "model/scale.h"
#include "model/synth.h"
#include "model/turns.h"
#include "workload.h"

namespace heapwright::model {
namespace {

using trace::Event;
using trace::Kind;

// Blocks of threads, freed and made as a test says.
class Program {
 public:
  std::vector<Event> events;

  std::uint64_t make(std::uint32_t thread, std::uint64_t size) {
    events.push_back({.thread = thread, .time = events.size(), .object = made_, .size = size});
    return made_++;
  }
  void free(std::uint32_t thread, std::uint64_t object) {
    events.push_back({.kind = Kind::kFree, .thread = thread, .time = events.size(), .object = object});
  }
  void end(std::uint32_t thread) {
    events.push_back({.kind = Kind::kThreadEnd, .thread = thread, .time = events.size()});
  }

 private:
  std::uint64_t made_ = 0;
};

// Figures of the threads of a trace. Bytes are those that a thread has allocated less those that
// it has freed.
struct Seen {
  std::uint64_t peak = 0;
  std::vector<std::int64_t> most;   // by thread
  std::vector<std::int64_t> least;  // after the first tenth of the trace
  std::vector<bool> ended;
  std::uint64_t turns = 0;
  std::uint64_t remote = 0;        // frees by another thread than made the block
  std::uint64_t of_the_ended = 0;  // of these, blocks of threads that had ended
};

Seen watch(const std::vector<Event>& events) {
  const Judged sound = judge(events);
  Seen seen;
  seen.peak = sound.peak;
  std::vector<std::int64_t> held(sound.threads.size());
  seen.most = seen.least = held;
  seen.ended.resize(held.size());
  std::vector<std::pair<std::uint32_t, std::uint64_t>> blocks;
  std::uint32_t turn = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    EXPECT_FALSE(seen.ended[event.thread]);
    if (event.kind == Kind::kThreadEnd) {
      seen.ended[event.thread] = true;
    } else if (is_allocation(event.kind)) {
      seen.turns += turn == event.thread ? 0 : 1;
      turn = event.thread;
      blocks.emplace_back(event.thread, event.size);
      held[event.thread] += static_cast<std::int64_t>(event.size);
    } else if (is_free(event.kind)) {
      const auto [maker, size] = blocks[event.object];
      held[event.thread] -= static_cast<std::int64_t>(size);
      seen.remote += maker == event.thread ? 0 : 1;
      seen.of_the_ended += maker != event.thread && seen.ended[maker] ? 1 : 0;
    }
    std::int64_t& most = seen.most[event.thread];
    most = std::max(most, held[event.thread]);
    if (i > events.size() / 10 && i < events.size() * 9 / 10) {
      std::int64_t& least = seen.least[event.thread];
      least = least == 0 ? held[event.thread] : std::min(least, held[event.thread]);
    }
  }
  return seen;
}

Seen made_up(const std::vector<Event>& events, double heap = 1) {
  Model model;
  trace::Loss loss;
  std::string error;
  EXPECT_TRUE(
      fit([&] { return std::make_unique<trace::VectorSource>(events); }, {.script = 0}, model, loss, error));
  EXPECT_TRUE(scale(model, heap, 1));
  return watch(all_of(*make_windows_source(std::move(model), 1)));
}

// Two threads on one core, each with 400 blocks of which it replaces the oldest, in turns of 700 to
// 1700 ticks.
std::vector<Event> in_turns() {
  Program program;
  Rng rng(1);
  std::array<std::deque<std::uint64_t>, 2> blocks;
  for (std::uint32_t turn = 0; turn < 200; ++turn) {
    const std::uint32_t thread = turn % 2;
    const std::uint64_t ticks = 700 + rng.below(1000);
    for (std::uint64_t i = 0; i < ticks; ++i) {
      if (blocks[thread].size() == 400) {
        program.free(thread, blocks[thread].front());
        blocks[thread].pop_front();
      }
      blocks[thread].push_back(program.make(thread, 512));
    }
  }
  return program.events;
}

TEST(Threads, WhatIsReplacedOneForOneDoesNotSway) {
  const auto events = in_turns();
  const Seen truth = watch(events);
  for (const double heap : {1.0, 2.0}) {
    const Seen found = made_up(events, heap);
    EXPECT_NEAR(static_cast<double>(found.peak), heap * static_cast<double>(truth.peak),
                0.02 * heap * static_cast<double>(truth.peak));
    ASSERT_EQ(found.most.size(), 2U);
    for (std::uint32_t thread = 0; thread < 2; ++thread) {
      const double bytes = heap * static_cast<double>(truth.most[thread]);
      EXPECT_NEAR(static_cast<double>(found.most[thread]), bytes, 0.02 * bytes) << thread;
      EXPECT_NEAR(static_cast<double>(found.least[thread]), bytes, 0.02 * bytes) << thread;
    }
  }
}

TEST(Threads, TakeTurnsAsOftenAsTheyDid) {
  const auto events = in_turns();
  const auto truth = static_cast<double>(watch(events).turns);
  EXPECT_NEAR(static_cast<double>(made_up(events).turns), truth, truth / 2);
}

// Four threads at a time; each replaces blocks of one of those before it, and ends.
TEST(Threads, EndAndHandOver) {
  Program program;
  Rng rng(2);
  std::array<std::vector<std::uint64_t>, 4> blocks;
  for (auto& each : blocks) {
    for (int i = 0; i < 500; ++i) {
      each.push_back(program.make(0, 64));
    }
  }
  for (std::uint32_t generation = 0; generation < 6; ++generation) {
    for (int step = 0; step < 2000; ++step) {
      for (std::uint32_t number = 0; number < 4; ++number) {
        std::uint64_t& block = blocks[(number + generation) % 4][rng.below(500)];
        program.free(1 + 4 * generation + number, block);
        block = program.make(1 + 4 * generation + number, 16 + rng.below(100));
      }
    }
    for (std::uint32_t number = 0; number < 4; ++number) {
      program.end(1 + 4 * generation + number);
    }
  }
  const Seen truth = watch(program.events);
  const Seen found = made_up(program.events);
  EXPECT_EQ(found.most.size(), 25U);
  EXPECT_EQ(std::count(found.ended.begin(), found.ended.end(), true), 24);
  const auto near = [](std::uint64_t value, std::uint64_t of, double part) {
    EXPECT_NEAR(static_cast<double>(value), static_cast<double>(of), part * static_cast<double>(of));
  };
  near(found.peak, truth.peak, 0.02);
  near(found.remote, truth.remote, 0.1);
  near(found.of_the_ended, truth.of_the_ended, 0.1);
}

// One makes, the other only frees: it has no ticks to tell the time by.
TEST(Threads, OneMayOnlyFree) {
  Program program;
  std::deque<std::uint64_t> blocks;
  for (int i = 0; i < 40000; ++i) {
    blocks.push_back(program.make(0, 100));
    if (blocks.size() > 1000) {
      program.free(1, blocks.front());
      blocks.pop_front();
    }
  }
  const Seen truth = watch(program.events);
  const Seen found = made_up(program.events);
  EXPECT_EQ(found.remote, truth.remote);
  EXPECT_LT(found.peak, truth.peak * 11 / 10);
}

TEST(Threads, VeryManyEndsAreThinnedOut) {
  std::vector<ThreadEnd> ends;
  ends.reserve(9001);
  for (std::uint32_t i = 0; i < 9000; ++i) {
    ends.push_back({1 + i % 3, i, 0});
  }
  ends.push_back({5, 9000, 0});
  thin(ends);
  EXPECT_LE(ends.size(), 600U);
  EXPECT_GE(ends.size(), 250U);
  EXPECT_EQ(ends.back().thread, 5U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GE(ends[ends.size() - 2 - i].window, 8997U);  // the last of each
  }
  EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end(),
                             [](const ThreadEnd& a, const ThreadEnd& b) { return a.window < b.window; }));
}

TEST(Turns, GiveEachItsTicks) {
  Rng rng(1);
  for (const std::uint64_t count : {0U, 1U, 10U, 300U, 100000U}) {
    std::array<std::uint64_t, kGroups> ticks{900, 0, 100, 2000};
    Turns turns(ticks, count, 0);
    std::uint64_t changed = 0;
    std::uint32_t last = kGroups;
    while (turns.left() > 0) {
      const std::uint32_t group = turns.next(rng);
      ASSERT_GT(ticks[group]--, 0U);
      changed += group == last ? 0 : 1;
      last = group;
    }
    EXPECT_EQ(ticks, (std::array<std::uint64_t, kGroups>{}));
    EXPECT_GE(changed, std::max<std::uint64_t>(3, std::min<std::uint64_t>(count / 2, 150)));
    EXPECT_LE(changed, count + 3);
  }
}

}  // namespace
}  // namespace heapwright::model
