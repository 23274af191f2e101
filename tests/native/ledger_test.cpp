// Tests the ledger's arithmetic by worked examples and against a naive model.
#include "ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace heapwright::meter {
namespace {

Memory all(std::uint64_t value) { return {.vm = value, .rss = value, .heap = value}; }

TEST(Ledger, StepsOfHeapAreExact) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, all(0));
  // Nothing is mapped until the call entered at 1 s. It maps 100, which the reading at the next
  // call, at 3 s, shows.
  ledger.sample(1, 1, all(0));
  ledger.sample(1, 3, all(100));
  ledger.process_ended(1, 4);
  EXPECT_DOUBLE_EQ(ledger.mean_heap(4), (0 * 1 + 100 * 2 + 100 * 1) / 4.0);
  EXPECT_EQ(ledger.peak().heap, 100U);
}

TEST(Ledger, ResidentMemoryRisesInALineAndFallsAtTheCall) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, all(0));
  ledger.sample(1, 2, all(100));  // a line: 50 on average
  ledger.sample(1, 4, all(20));   // counts as a fall at 2 s, at the call of the last reading
  ledger.process_ended(1, 5);
  EXPECT_DOUBLE_EQ(ledger.mean_rss(5), (50 * 2 + 20 * 2 + 20 * 1) / 5.0);
  EXPECT_EQ(ledger.peak().rss, 100U);
}

TEST(Ledger, OnlyAFallAtAReleasingCallIsReturned) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, all(100));
  ledger.sample(1, 1, all(60));  // reclaimed by the kernel, not returned by the process
  EXPECT_EQ(ledger.returned(), 0U);
  ledger.begin_release(1, 1);
  ledger.sample(1, 2, all(60));  // a tick, before the call took effect
  ledger.sample(1, 2, all(25));
  EXPECT_EQ(ledger.returned(), 35U);
  ledger.end_release(1, 1);
  ledger.begin_release(1, 1);
  ledger.sample(1, 3, all(40));  // grew meanwhile
  ledger.end_release(1, 1);
  ledger.sample(1, 4, all(10));  // the last call was not a releasing one
  EXPECT_EQ(ledger.returned(), 35U);
  ledger.process_ended(1, 5);  // the end of a process returns no memory
  EXPECT_EQ(ledger.returned(), 35U);
  ledger.begin_release(7, 7);  // unknown: nothing happens
  EXPECT_EQ(ledger.live(), 0U);
}

TEST(Ledger, PeaksAreOfTheSumOverLiveProcesses) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, all(100));
  ledger.sample(2, 1, all(50));
  ledger.process_ended(1, 2);
  ledger.sample(3, 3, all(70));
  EXPECT_EQ(ledger.peak().rss, 150U);
  EXPECT_EQ(ledger.live(), 2U);
  ledger.sample(2, 4, all(90));
  EXPECT_EQ(ledger.peak().rss, 160U);
}

TEST(Ledger, CountsWhoLivesAtOnceAndKnowsWhenThatChanged) {
  Ledger ledger;
  ledger.start(0);
  EXPECT_EQ(ledger.max_live(), 0U);
  ledger.sample(1, 1, all(100));
  ledger.sample(2, 2, all(50));
  EXPECT_DOUBLE_EQ(ledger.changed(), 2);
  ledger.sample(1, 3, all(70));
  EXPECT_DOUBLE_EQ(ledger.changed(), 2);
  EXPECT_EQ(ledger.total().rss, 120U);
  ledger.process_ended(1, 4);
  EXPECT_DOUBLE_EQ(ledger.changed(), 4);
  ledger.process_ended(1, 5);  // once more
  ledger.sample(3, 6, all(70));
  EXPECT_DOUBLE_EQ(ledger.changed(), 6);
  EXPECT_EQ(ledger.max_live(), 2U);
  ledger.sample(4, 7, all(1));
  EXPECT_EQ(ledger.max_live(), 3U);
}

TEST(Ledger, ASeriesKeepsEveryPeakAndItsBound) {
  constexpr std::size_t kLimit = 50;
  Ledger ledger(kLimit);
  ledger.start(10);
  std::uint64_t highest = 0;
  std::mt19937 random(3);  // NOLINT(bugprone-random-generator-seed): the same run every time
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t value = random() % 1000000;
    highest = std::max(highest, value);
    ledger.sample(1, 10 + i * 0.01, all(value));
    ledger.tick(10 + i * 0.01);
    ASSERT_LE(ledger.series().size(), kLimit);
  }
  ASSERT_GE(ledger.series().size(), kLimit / 2);
  std::uint64_t shown = 0;
  double before = -1;
  for (const auto& point : ledger.series()) {
    EXPECT_GT(point.time, before);
    before = point.time;
    shown = std::max(shown, point.memory.rss);
  }
  EXPECT_EQ(shown, highest);
  EXPECT_LT(before, 50.0);
}

TEST(Ledger, PointsOfALongSeriesStayEvenlySpaced) {
  Ledger ledger(48);
  ledger.start(0);
  for (int i = 0; i < 100000; ++i) {
    ledger.tick(i);
  }
  double widest = 0;
  for (std::size_t i = 1; i < ledger.series().size(); ++i) {
    widest = std::max(widest, ledger.series()[i].time - ledger.series()[i - 1].time);
  }
  EXPECT_LE(widest, 100000.0 / 24);
}

TEST(Ledger, ASeriesIsInOrderThoughTheRunEndedBeforeTheLastTick) {
  Ledger ledger(48);
  ledger.start(0);
  ledger.tick(2.0);
  ledger.tick(1.9);
  ASSERT_EQ(ledger.series().size(), 2U);
  EXPECT_EQ(ledger.series()[1].time, 2.0);
}

TEST(Ledger, WithoutASeriesNothingIsKept) {
  Ledger ledger;
  ledger.sample(1, 0, all(1));
  ledger.tick(1);
  EXPECT_TRUE(ledger.series().empty());
}

TEST(Ledger, EachPeakHasItsOwnMoment) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, {.vm = 100, .rss = 1, .heap = 5});
  ledger.sample(1, 1, {.vm = 90, .rss = 9, .heap = 4});
  ledger.sample(2, 2, {.vm = 5, .rss = 0, .heap = 6});
  EXPECT_EQ(ledger.peak().vm, 100U);
  EXPECT_EQ(ledger.peak().rss, 9U);
  EXPECT_EQ(ledger.peak().heap, 10U);
}

TEST(Ledger, ManyThreadsMayBeGivingBackAtOnce) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, all(100));
  ledger.begin_release(1, 11);
  ledger.begin_release(1, 12);
  ledger.end_release(1, 11);
  ledger.sample(1, 1, all(70));  // thread 12 is still in its call
  ledger.end_release(1, 12);
  ledger.sample(1, 2, all(50));
  EXPECT_EQ(ledger.returned(), 30U);
}

TEST(Ledger, MeansAreOverTheWholeRun) {
  Ledger ledger;
  ledger.start(10);
  ledger.sample(1, 12, all(60));  // counts as 0 before this first reading
  ledger.process_ended(1, 14);
  EXPECT_DOUBLE_EQ(ledger.mean_heap(20), 60 * 2 / 10.0);
  EXPECT_DOUBLE_EQ(ledger.mean_rss(20), 60 * 2 / 10.0);
  EXPECT_DOUBLE_EQ(ledger.mean_heap(10), 0);  // over no time
}

TEST(Ledger, AReadingThatComesLateChangesNoTime) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 5, all(10));
  ledger.sample(1, 4, all(20));
  ledger.process_ended(1, 4);
  EXPECT_DOUBLE_EQ(ledger.mean_heap(5), 0);
  EXPECT_EQ(ledger.peak().heap, 20U);
}

// Random histories of all events: the model keeps every reading and integrates at the end.
class Model {
 public:
  void sample(pid_t process, double time, const Memory& memory) {
    auto& readings = histories_[process];
    if (!readings.empty() && !releasing_[process].empty() && memory.rss < readings.back().memory.rss) {
      returned += readings.back().memory.rss - memory.rss;
    }
    readings.push_back({.time = time, .memory = memory});
    Memory sum;
    for (const auto& [other, history] : histories_) {
      sum.vm += history.back().memory.vm;
      sum.rss += history.back().memory.rss;
      sum.heap += history.back().memory.heap;
    }
    peak.vm = std::max(peak.vm, sum.vm);
    peak.rss = std::max(peak.rss, sum.rss);
    peak.heap = std::max(peak.heap, sum.heap);
  }

  void begin_release(pid_t process, pid_t thread) {
    if (histories_.contains(process)) {
      releasing_[process].insert(thread);
    }
  }

  void end_release(pid_t process, pid_t thread) { releasing_[process].erase(thread); }

  void process_ended(pid_t process, double end) {
    const auto found = histories_.find(process);
    if (found == histories_.end()) {
      return;
    }
    const auto& readings = found->second;
    for (std::size_t i = 0; i < readings.size(); ++i) {
      const bool last = i + 1 == readings.size();
      const double span = (last ? end : readings[i + 1].time) - readings[i].time;
      const Memory& from = readings[i].memory;
      const Memory& to = last ? from : readings[i + 1].memory;
      heap_area += span * static_cast<double>(to.heap);
      rss_area += span * static_cast<double>(to.rss >= from.rss ? from.rss + to.rss : 2 * to.rss) / 2;
    }
    histories_.erase(found);
    releasing_.erase(process);
  }

  Memory peak;
  std::uint64_t returned = 0;
  double rss_area = 0;
  double heap_area = 0;

 private:
  struct Reading {
    double time = 0;
    Memory memory;
  };
  std::map<pid_t, std::vector<Reading>> histories_;
  std::map<pid_t, std::set<pid_t>> releasing_;
};

TEST(Ledger, EqualsANaiveModelOnRandomHistories) {
  std::mt19937 random(11);  // NOLINT(bugprone-random-generator-seed): the same run every time
  for (int history = 0; history < 200; ++history) {
    Ledger ledger;
    ledger.start(0);
    Model model;
    double time = 0;
    for (int step = 0; step < 300; ++step) {
      time += static_cast<double>(random() % 100) / 100;
      const auto process = static_cast<pid_t>(1 + random() % 4);
      const auto thread = static_cast<pid_t>(10 + random() % 3);
      switch (random() % 10) {
        case 0:
          ledger.process_ended(process, time);
          model.process_ended(process, time);
          break;
        case 1:
        case 2:
          ledger.begin_release(process, thread);
          model.begin_release(process, thread);
          break;
        case 3:
        case 4:
          ledger.end_release(process, thread);
          model.end_release(process, thread);
          break;
        default: {
          const Memory memory{.vm = 5000 + random() % 1000, .rss = random() % 1000, .heap = random() % 3000};
          ledger.sample(process, time, memory);
          model.sample(process, time, memory);
        }
      }
    }
    for (pid_t process = 1; process <= 4; ++process) {
      ledger.process_ended(process, time);
      model.process_ended(process, time);
    }
    ASSERT_EQ(ledger.peak().vm, model.peak.vm);
    ASSERT_EQ(ledger.peak().rss, model.peak.rss);
    ASSERT_EQ(ledger.peak().heap, model.peak.heap);
    ASSERT_EQ(ledger.returned(), model.returned);
    ASSERT_NEAR(ledger.mean_rss(time), model.rss_area / time, 1e-9 * model.rss_area);
    ASSERT_NEAR(ledger.mean_heap(time), model.heap_area / time, 1e-9 * model.heap_area);
    ASSERT_EQ(ledger.live(), 0U);
  }
}

}  // namespace

TEST(SizeDurations, QuantilesAreOverTime) {
  SizeDurations sizes;
  EXPECT_TRUE(sizes.empty());
  EXPECT_EQ(sizes.quantile(0.95), 0U);
  sizes.add(1000, 94);
  sizes.add(5000, 2);
  sizes.add(9000, 4);
  EXPECT_EQ(sizes.quantile(0.5), 1000U);
  EXPECT_EQ(sizes.quantile(0.95), 5000U);
  EXPECT_EQ(sizes.quantile(1), 9000U);
}

TEST(SizeDurations, ErrsByAtMostOneBucketInBoundedSpace) {
  SizeDurations sizes;
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> all;
  for (int i = 0; i < 200000; ++i) {
    all.push_back((std::uint64_t{1} << 20) + (random() >> 30));
    sizes.add(all.back(), 0.01);
  }
  std::ranges::sort(all);
  const auto exact = static_cast<double>(all[all.size() * 95 / 100 - 1]);
  const auto found = static_cast<double>(sizes.quantile(0.95));
  EXPECT_GE(found, exact);
  EXPECT_LE(found, exact * 1.004);
  EXPECT_LT(sizes.buckets(), 15U * 256);
}

TEST(Ledger, TellsTheFinalTotalAndTheQuantileOfTheTree) {
  Ledger ledger;
  ledger.set_root(1);
  ledger.start(0);
  EXPECT_FALSE(ledger.rss_quantile(0.95).has_value());
  ledger.sample(1, 0, {.vm = 0, .rss = 100, .heap = 0});
  ledger.sample(2, 90, {.vm = 0, .rss = 50, .heap = 0});  // 90 s at 150 once it is known
  ledger.sample(1, 100, {.vm = 0, .rss = 300, .heap = 0});
  EXPECT_EQ(ledger.rss_quantile(0.5), 150U);
  EXPECT_EQ(ledger.rss_quantile(0.95), 350U);
  EXPECT_FALSE(ledger.final_rss().has_value());
  ledger.process_ended(2, 101);
  ledger.process_ended(1, 102);
  EXPECT_EQ(ledger.final_rss(), 300U);
}

}  // namespace heapwright::meter
