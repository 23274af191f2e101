// The ledger's arithmetic against worked examples and against a naive model.
#include "ledger.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

namespace heapwright::meter {
namespace {

Memory all(std::uint64_t value) { return {.vm = value, .rss = value, .heap = value}; }

TEST(Ledger, StepsOfHeapAreExact) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, all(0));
  // At 1 s a call is entered; until then nothing was mapped. It maps 100, at 3 s the next call sees them.
  ledger.sample(1, 1, all(0));
  ledger.sample(1, 3, all(100));
  ledger.gone(1, 4);
  EXPECT_DOUBLE_EQ(ledger.mean_heap(4), (0 * 1 + 100 * 2 + 100 * 1) / 4.0);
  EXPECT_EQ(ledger.peak().heap, 100U);
}

TEST(Ledger, ResidentMemoryRisesInALineAndFallsAtTheCall) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, all(0));
  ledger.sample(1, 2, all(100));  // a line: 50 on average
  ledger.sample(1, 4, all(20));   // fell at 2 s, at the call the last reading was taken before
  ledger.gone(1, 5);
  EXPECT_DOUBLE_EQ(ledger.mean_rss(5), (50 * 2 + 20 * 2 + 20 * 1) / 5.0);
  EXPECT_EQ(ledger.peak().rss, 100U);
}

TEST(Ledger, OnlyAFallAtAReleasingCallIsReturned) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, all(100));
  ledger.sample(1, 1, all(60));  // reclaimed by the kernel: nobody gave it back
  EXPECT_EQ(ledger.returned(), 0U);
  ledger.releasing(1, 1);
  ledger.sample(1, 2, all(60));  // a tick, before the call took effect
  ledger.sample(1, 2, all(25));
  EXPECT_EQ(ledger.returned(), 35U);
  ledger.released(1, 1);
  ledger.releasing(1, 1);
  ledger.sample(1, 3, all(40));  // grew meanwhile
  ledger.released(1, 1);
  ledger.sample(1, 4, all(10));  // the call before was no releasing one
  EXPECT_EQ(ledger.returned(), 35U);
  ledger.gone(1, 5);  // what dies gives nothing back
  EXPECT_EQ(ledger.returned(), 35U);
  ledger.releasing(7, 7);  // unknown: nothing happens
  EXPECT_EQ(ledger.live(), 0U);
}

TEST(Ledger, PeaksAreOfTheSumOverLiveProcesses) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, all(100));
  ledger.sample(2, 1, all(50));
  ledger.gone(1, 2);
  ledger.sample(3, 3, all(70));
  EXPECT_EQ(ledger.peak().rss, 150U);
  EXPECT_EQ(ledger.live(), 2U);
  ledger.sample(2, 4, all(90));
  EXPECT_EQ(ledger.peak().rss, 160U);
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

TEST(Ledger, WithoutASeriesNothingIsKept) {
  Ledger ledger;
  ledger.sample(1, 0, all(1));
  ledger.tick(1);
  EXPECT_TRUE(ledger.series().empty());
}

// Everything above at once, on random histories: the model keeps every reading and integrates at the end.
TEST(Ledger, EqualsANaiveModelOnRandomHistories) {
  struct Reading {
    double time = 0;
    std::uint64_t rss = 0;
  };
  std::mt19937 random(11);  // NOLINT(bugprone-random-generator-seed): the same run every time
  for (int history = 0; history < 200; ++history) {
    Ledger ledger;
    ledger.start(0);
    std::map<pid_t, std::vector<Reading>> model;
    std::map<pid_t, std::uint64_t> last;
    std::uint64_t peak = 0;
    double area = 0;
    double time = 0;
    const auto integrate = [&](const std::vector<Reading>& readings, double end) {
      for (std::size_t i = 0; i < readings.size(); ++i) {
        const bool final = i + 1 == readings.size();
        const double until = final ? end : readings[i + 1].time;
        const auto from = static_cast<double>(readings[i].rss);
        const auto to = final ? from : static_cast<double>(readings[i + 1].rss);
        area += (until - readings[i].time) * (to >= from ? (from + to) / 2 : to);
      }
    };
    for (int step = 0; step < 300; ++step) {
      time += static_cast<double>(random() % 100) / 100;
      const auto process = static_cast<pid_t>(1 + random() % 4);
      if (random() % 10 == 0) {
        ledger.gone(process, time);
        integrate(model[process], time);
        model.erase(process);
        last.erase(process);
        continue;
      }
      const std::uint64_t rss = random() % 1000;
      ledger.sample(process, time, all(rss));
      model[process].push_back({time, rss});
      last[process] = rss;
      std::uint64_t sum = 0;
      for (const auto& [pid, value] : last) {
        sum += value;
      }
      peak = std::max(peak, sum);
    }
    for (pid_t process = 1; process <= 4; ++process) {
      ledger.gone(process, time);
      integrate(model[process], time);
    }
    ASSERT_EQ(ledger.peak().rss, peak);
    ASSERT_NEAR(ledger.mean_rss(time), area / time, 1e-6 * area);
  }
}

}  // namespace
}  // namespace heapwright::meter
