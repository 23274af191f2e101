// Tests the parts of the generator of synthetic traces, each by itself.
#include <gtest/gtest.h>

#include <vector>

#include "model/event_writer.h"
#include "model/group_states.h"
#include "model/live_classes.h"
#include "model/script_player.h"
#include "model/thread_chooser.h"

namespace heapwright::model {
namespace {

using trace::Event;
using trace::Kind;

// A class of 16-byte blocks by the thread 0.
SizeClass small_class() {
  SizeClass c;
  c.sizes = {{16, 1}};
  c.threads = {{0, 1}};
  return c;
}

// A window in which each of `classes` classes has so many brief lifetimes, and ends `olds`
// lifetimes of the window before.
Window window_of(std::size_t classes, std::uint64_t briefs, std::uint64_t olds = 0) {
  Window window;
  window.ticks = classes * briefs;
  window.rows.resize(classes);
  for (ClassActivity& row : window.rows) {
    row.brief[0] = briefs;
    row.old[0] = olds;
  }
  return window;
}

LiveBlock block(std::uint64_t object) { return {object, 16, 0, true}; }

TEST(EventWriter, StartsAThreadBeforeItsFirstEvent) {
  EventWriter events(3);
  events.start_window(1000);
  events.add({.kind = Kind::kMalloc, .object = events.new_object()},
             2);  // thread 0 of the trace: it needs no start
  events.set_progress(0.5);
  events.add({.kind = Kind::kMalloc, .object = events.new_object()}, 1);
  EXPECT_FALSE(events.can_end(2));
  EXPECT_TRUE(events.can_end(1));
  events.end_thread(1);
  events.add({.kind = Kind::kFree, .object = 0}, 1);  // by a new thread
  std::vector<std::pair<Kind, std::uint32_t>> found;
  for (Event event; events.take(event);) {
    found.emplace_back(event.kind, event.thread);
    EXPECT_EQ(event.time, found.size() == 1 ? 0 : 500);
  }
  const std::vector<std::pair<Kind, std::uint32_t>> wanted{{Kind::kMalloc, 0},      {Kind::kThreadStart, 1},
                                                           {Kind::kMalloc, 1},      {Kind::kThreadEnd, 1},
                                                           {Kind::kThreadStart, 2}, {Kind::kFree, 2}};
  EXPECT_EQ(found, wanted);
}

TEST(EventWriter, AddsUpTheTimesOfWindows) {
  EventWriter events(1);
  for (int window = 0; window < 3; ++window) {
    events.start_window(100);
    events.set_progress(0.25);
    events.add({.kind = Kind::kMalloc}, 0);
    events.end_window();
    Event event;
    ASSERT_TRUE(events.take(event));
    EXPECT_EQ(event.time, 100 * window + 25);
    EXPECT_FALSE(events.take(event));
  }
}

TEST(LiveClasses, ReserveTheLastEndsForReallocs) {
  const std::vector<SizeClass> classes{small_class()};
  Rng rng(1);
  LiveClasses live(classes);
  live.start_window(window_of(1, 2));
  live.expect_realloc(0);
  EXPECT_FALSE(live.take_for_realloc(0, rng));
  live.add_brief(0, block(7), {1, live.next_brief()});
  live.add_brief(0, block(8), {2, live.next_brief()});
  // Two ends, one of them by realloc: the first block may be freed, the second must wait.
  EXPECT_FALSE(live.ends_are_reserved(0));
  const auto first = live.end_brief(0);
  ASSERT_TRUE(first);
  EXPECT_TRUE(live.free_or_wait(0, *first));
  EXPECT_TRUE(live.ends_are_reserved(0));
  const auto second = live.end_brief(1);
  ASSERT_TRUE(second);
  EXPECT_FALSE(live.free_or_wait(0, *second));
  EXPECT_EQ(live.waiting(0).size(), 1U);
  const auto taken = live.take_for_realloc(0, rng);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->object, 8U);
  EXPECT_TRUE(live.waiting(0).empty());
}

TEST(LiveClasses, GiveAReallocTheBlockThatWouldEndNext) {
  const std::vector<SizeClass> classes{small_class()};
  Rng rng(1);
  LiveClasses live(classes);
  live.start_window(window_of(1, 0));
  live.add_long(0, block(1));
  live.start_window(window_of(1, 2, 1));
  live.expect_realloc(0);
  live.expect_realloc(0);
  live.expect_old_end(0, 5);
  live.add_brief(0, block(7), {9, live.next_brief()});
  live.add_brief(0, block(8), {3, live.next_brief()});
  EXPECT_EQ(live.take_for_realloc(0, rng)->object, 8U);
  EXPECT_EQ(live.take_for_realloc(0, rng)->object, 1U);
  // The realloc took the old block before its time, so its own end comes to nothing.
  EXPECT_FALSE(live.end_old(0, false, rng));
  EXPECT_FALSE(live.end_brief(1));
  EXPECT_TRUE(live.end_brief(0));
}

TEST(LiveClasses, OfferScriptedBlocksInOrder) {
  const std::vector<SizeClass> classes{small_class(), small_class()};
  LiveClasses live(classes);
  live.start_window(window_of(2, 1));
  live.offer_scripted(1, 4);
  live.offer_scripted(1, 2);
  EXPECT_FALSE(live.take_scripted(0));
  EXPECT_EQ(live.take_scripted(1), 4U);
  EXPECT_EQ(live.offered(1).size(), 1U);
}

TEST(ByteBalance, HasTwoBounds) {
  ByteBalance balance(100, 50);
  EXPECT_FALSE(balance.too_high() || balance.too_low());
  balance.add(101);
  EXPECT_TRUE(balance.too_high());
  balance.add(-151);
  EXPECT_TRUE(balance.too_low());
  balance.add(1);
  EXPECT_FALSE(balance.too_high() || balance.too_low());
}

TEST(GroupStates, CountAgainstTheBoundsOfAGroupAndOfAll) {
  Window window = window_of(1, 10);
  window.parts[1].above = 100;
  window.parts[2].above = 100;
  window.parts[kGroups].above = 120;
  GroupStates groups;
  groups.start(window, WindowSchedule{});
  groups.count(1, 90);
  EXPECT_FALSE(groups.too_high(1));
  groups.count(2, 90);  // 180 in all
  EXPECT_TRUE(groups.too_high(1));
  groups.count(2, -90);
  groups.count(1, 20);
  EXPECT_TRUE(groups.too_high(1));
  EXPECT_FALSE(groups.too_high(2));
}

TEST(GroupStates, SayWhenALifetimeEndsByTheClockOfTheFreeingGroup) {
  Window window = window_of(1, 40);
  WindowSchedule schedule;
  schedule[0].begins.resize(10);
  schedule[0].timed = true;
  schedule[1].begins.resize(30);
  schedule[1].timed = true;
  GroupStates groups;
  groups.start(window, schedule);
  EXPECT_EQ(groups.untimed().size(), kGroups - 2);
  groups[0].done = 3;
  groups[1].done = 9;
  ScheduledBegin begin;
  begin.length = 1;
  begin.freed_by = 0;
  EXPECT_EQ(groups.end_of(begin, 0, 12), 5U);  // tick 3, the tick itself, and one more
  begin.freed_by = 1;
  EXPECT_EQ(groups.end_of(begin, 0, 12), 15U);  // half of the ticks of group 0, so half of those of group 1
  begin.freed_by = 2;                           // without a clock: by all ticks
  EXPECT_EQ(groups.end_of(begin, 0, 12), 20U);
  begin.freed_by = 0;
  begin.until = 1;  // a burst at the end of the window
  EXPECT_EQ(groups.end_of(begin, 0, 12), 10U);
  begin.until = 0.1F;  // already over: at the next tick
  EXPECT_EQ(groups.end_of(begin, 0, 12), 4U);
}

TEST(ScriptPlayer, FollowsAChainOfReallocs) {
  std::vector<Scripted> script(3);
  script[0] = {.tick = 0, .length = 5, .end = Scripted::End::kIntoScript, .end_with = 1};
  script[1] = {.tick = 6, .length = 2, .begin = Scripted::Begin::kFromScript, .end = Scripted::End::kFree};
  script[2] = {.tick = 7, .begin = Scripted::Begin::kFromScript, .end = Scripted::End::kNeverFreed};
  ScriptPlayer player(script);
  EXPECT_EQ(player.next_begin(0), 0U);
  player.begun(40);
  EXPECT_FALSE(player.next_begin(5));
  EXPECT_EQ(player.next_begin(6), 1U);
  EXPECT_EQ(player.take_predecessor(1), 40U);
  player.begun(40);
  EXPECT_EQ(player.object(0), kNever);
  EXPECT_FALSE(player.take_predecessor(2));  // entry 0 went into entry 1
  player.begun(41);
  EXPECT_EQ(player.next_end(), 9U);
  EXPECT_EQ(player.take(player.take_end()), 40U);
  EXPECT_EQ(player.next_end(), kNever);
  EXPECT_EQ(player.object(2), 41U);
}

TEST(ThreadChooser, FollowsTheCountsOfTheModel) {
  Rng rng(3);
  ThreadChooser chooser(4, rng);
  SizeClass c = small_class();
  c.threads = {{0, 3}, {1, 1}};
  c.freed_own = 1;
  c.freed_by = {{1, 3}, {2, 5}};
  int first = 0;
  for (int i = 0; i < 4000; ++i) {
    first += chooser.beginner(c) == 0 ? 1 : 0;
  }
  EXPECT_NEAR(first, 3000, 150);
  EXPECT_EQ(chooser.beginner(c, 1), 1U);
  EXPECT_EQ(chooser.freer(c, 0, 0), 0U);
  EXPECT_EQ(chooser.freer(c, 0, 2), 2U);
  EXPECT_EQ(chooser.freer(c, 0, 3), 3U);  // nothing is known of group 3
}

}  // namespace
}  // namespace heapwright::model
