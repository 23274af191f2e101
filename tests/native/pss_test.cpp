// Tests when proportional set sizes are read, and the peak and mean of the readings, on a synthetic
// clock.
#include "pss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace heapwright::meter {
namespace {

using Moment = PssSampler::Moment;
constexpr std::uint64_t kMib = 1U << 20U;
constexpr double kTick = 0.01;
constexpr double kPerMib = 7e-6;  // seconds of CPU that a reading takes

Memory resident(std::uint64_t mib) { return {.vm = mib * kMib, .rss = mib * kMib, .heap = mib * kMib}; }

// Simulates one process with given memory and cost, tick by tick.
class Course {
 public:
  Course() {
    ledger.start(0);
    pss.start(0);
  }

  // Sets the resident memory and returns whether the sampler reads it at this moment.
  bool at(std::uint64_t mib, Moment moment = Moment::kOrdinary) {
    ledger.sample(1, time, resident(mib));
    if (!pss.due(time, ledger, moment)) {
      return false;
    }
    pss.read(time, static_cast<double>(mib) * kPerMib, ledger, Rollup{.rss = mib * kMib, .pss = mib * kMib});
    readings.push_back(time);
    return true;
  }

  void run(double until, const std::function<std::uint64_t(double)>& mib) {
    for (; time < until; time += kTick) {
      at(mib(time));
    }
  }

  Ledger ledger;
  PssSampler pss;
  double time = 0;
  std::vector<double> readings;
};

TEST(PssBudget, NothingIsReadWhileAProgramLoadsItsLibraries) {
  Course course;
  EXPECT_FALSE(course.at(1));
  course.time = 0.005;
  EXPECT_FALSE(course.at(2));
  course.time = 0.01;
  EXPECT_TRUE(course.at(2));
}

TEST(PssBudget, AScaledSamplerMayReadSoonerAndCostMore) {
  PssSampler plain;
  PssSampler scaled(5);
  Ledger ledger;
  ledger.start(0);
  plain.start(0);
  scaled.start(0);
  ledger.sample(1, 0.003, resident(100));
  EXPECT_FALSE(plain.due(0.003, ledger, Moment::kOrdinary));
  EXPECT_TRUE(scaled.due(0.003, ledger, Moment::kOrdinary));
  for (PssSampler* const pss : {&plain, &scaled}) {
    pss->read(0.01, 0.0007, ledger, Rollup{.rss = 100 * kMib, .pss = 100 * kMib});
  }
  ledger.sample(1, 0.05, resident(110));
  EXPECT_FALSE(plain.due(0.05, ledger, Moment::kOrdinary));  // 1.7 ms of 50
  EXPECT_TRUE(scaled.due(0.05, ledger, Moment::kOrdinary));
}

TEST(PssBudget, WhatAProcessCopiedIsReadBeforeItExits) {
  Course course;
  course.run(1, [](double) { return 100; });
  course.time = course.readings.back() + 0.001;
  EXPECT_FALSE(course.at(100));
  EXPECT_FALSE(course.at(100, Moment::kReleasing));
  EXPECT_TRUE(course.at(100, Moment::kExit));
}

TEST(PssBudget, AProgramThatEndsAtOnceIsReadAtItsEnd) {
  Course course;
  course.time = 0.001;
  EXPECT_FALSE(course.at(3, Moment::kReleasing));
  EXPECT_TRUE(course.at(3, Moment::kExit));
  EXPECT_EQ(course.pss.peak(), 3 * kMib);
}

TEST(PssBudget, AProgramThatStaysAsItIsCostsOnePercent) {
  Course course;
  course.run(100, [](double) { return 1000; });
  EXPECT_LE(course.pss.spent(), 0.01 * 100 + 0.007);
  EXPECT_GE(course.pss.spent(), 0.009 * 100);
  // Evenly, once the first readings have been paid for: 7 ms each, so every 0.7 s.
  for (std::size_t i = 5; i < course.readings.size(); ++i) {
    EXPECT_NEAR(course.readings[i] - course.readings[i - 1], 0.7, 2 * kTick);
  }
}

TEST(PssBudget, ASmallProgramIsReadOften) {
  Course course;
  course.run(10, [](double) { return 4; });  // 28 us: every 2.8 ms, which is every tick
  EXPECT_GT(course.readings.size(), 900U);
}

TEST(PssBudget, AProgramThatGrowsAllTheTimeCostsNoMoreThanOneAndAHalf) {
  Course course;
  double worst = 0;
  for (; course.time < 100; course.time += kTick) {
    course.at(static_cast<std::uint64_t>(course.time * 100));
    worst = std::max(worst, course.pss.spent() - 0.015 * course.time);
  }
  EXPECT_LE(worst, 0.0005 + kPerMib);
  EXPECT_GE(course.pss.spent(), 0.014 * 100);
}

TEST(PssBudget, ReadingsBeforeMemoryGoesCostTwoPercentAtMost) {
  Course course;
  double worst = 0;
  for (; course.time < 10; course.time += kTick / 10) {
    course.at(static_cast<std::uint64_t>(1 + course.time * 1000), Moment::kReleasing);
    worst = std::max(worst, course.pss.spent() - 0.02 * course.time);
  }
  EXPECT_LE(worst, 0.001 + 0.005 + kPerMib);  // the allowance and the reserve
  EXPECT_GE(course.pss.spent(), 0.015 * 10);  // more than growth at ticks may cost
}

TEST(PssBudget, AShortPeakLateInALongRunIsRead) {
  Course course;
  const auto mib = [](double time) { return time >= 20 && time < 20.05 ? 800 : 100; };
  course.run(21, mib);
  EXPECT_EQ(course.pss.peak(), 800 * kMib);
}

TEST(PssBudget, APeakIsReadAtTheCallThatEndsIt) {
  Course course;
  course.run(1, [](double) { return 100; });
  course.at(160);
  const std::uint64_t before = course.pss.peak();
  // Growth by ticks has used up its share; the call at the peak has one of its own.
  for (std::uint64_t mib = 160; mib < 560; mib += 10) {
    course.time += 0.0001;
    course.at(mib);
  }
  EXPECT_LT(course.pss.peak(), 550 * kMib);
  EXPECT_TRUE(course.at(550, Moment::kReleasing));
  EXPECT_EQ(course.pss.peak(), 550 * kMib);
  EXPECT_GT(course.pss.peak(), before);
  EXPECT_FALSE(course.at(555, Moment::kReleasing));  // 1% more is no new peak
}

TEST(PssBudget, TheNextReadingIsForeseenToCostMoreWhereThereIsMoreToRead) {
  Course course;
  course.time = 0.01;
  EXPECT_TRUE(course.at(1));
  course.time = 0.1;
  EXPECT_FALSE(course.at(1000, Moment::kReleasing));  // 10 ms in 100
  EXPECT_TRUE(course.at(200, Moment::kReleasing));    // 2 ms
}

TEST(PssBudget, AFirstReadingOfNextToNothingSaysLittleOfTheNext) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, {.vm = 0, .rss = 4096, .heap = 0});
  PssSampler pss;
  pss.start(0);
  pss.read(0.01, 0.0001, ledger, Rollup{.rss = 4096, .pss = 4096});
  ledger.sample(1, 0.1, resident(64));
  EXPECT_TRUE(pss.due(0.1, ledger, Moment::kOrdinary));
}

TEST(PssBudget, AFailedReadingCostsAndLeavesNoFigure) {
  Ledger ledger;
  ledger.start(0);
  ledger.sample(1, 0, resident(100));
  PssSampler pss;
  pss.start(0);
  ASSERT_TRUE(pss.due(1, ledger, Moment::kOrdinary));
  pss.read(1, 0.5, ledger, std::nullopt);
  EXPECT_EQ(pss.samples(), 0U);
  EXPECT_DOUBLE_EQ(pss.spent(), 0.5);
  EXPECT_FALSE(pss.due(2, ledger, Moment::kOrdinary));
  EXPECT_TRUE(pss.due(101, ledger, Moment::kOrdinary));
}

TEST(PssPeak, ASumOfRssThatIsLowerMayStillBeANewPeak) {
  Ledger ledger;
  ledger.start(0);
  PssSampler pss;
  pss.start(0);
  // Three processes share 64 MiB.
  for (const pid_t process : {1, 2, 3}) {
    ledger.sample(process, 1, resident(64));
  }
  pss.read(1, 0.0001, ledger, Rollup{.rss = 192 * kMib, .pss = 64 * kMib});
  ledger.process_ended(2, 2);
  ledger.process_ended(3, 2);
  pss.read(2, 0.0001, ledger, Rollup{.rss = 64 * kMib, .pss = 64 * kMib});
  ledger.sample(1, 2.001, resident(65));
  EXPECT_FALSE(pss.due(2.001, ledger, Moment::kOrdinary));
  ledger.sample(1, 2.001, resident(100));
  EXPECT_TRUE(pss.due(2.001, ledger, Moment::kOrdinary));
}

// The memory of a tree: `anonymous` of its `mib` MiB, the rest of files.
Memory tree(std::uint64_t mib, std::uint64_t anonymous) {
  Memory memory = resident(mib);
  memory.anonymous = anonymous * kMib;
  return memory;
}

// A sampler that has read a process of 30 MiB, of which other processes share 10.
struct ReadOnce {
  ReadOnce() {
    ledger.start(0);
    pss.start(0);
    ledger.sample(1, 1, tree(30, 15));
    pss.observe(ledger);
    pss.read(1, 0.001, ledger, Rollup{.rss = 30 * kMib, .pss = 20 * kMib, .anonymous = 15 * kMib});
  }

  void now_has(std::uint64_t mib, std::uint64_t anonymous) {
    ledger.sample(1, 2, tree(mib, anonymous));
    pss.observe(ledger);
  }

  Ledger ledger;
  PssSampler pss;
};

TEST(PssPeak, FollowsAnonymousMemoryBetweenReadings) {
  ReadOnce run;
  run.now_has(70, 55);
  run.now_has(30, 15);
  EXPECT_EQ(run.pss.peak(), 20 * kMib);
  EXPECT_EQ(run.pss.peak_of_run(0), 60 * kMib);
  run.pss.read(3, 0.001, run.ledger, Rollup{.rss = 30 * kMib, .pss = 20 * kMib, .anonymous = 15 * kMib});
  EXPECT_EQ(run.pss.peak_of_run(0), 60 * kMib);
}

TEST(PssPeak, IsUnknownIfSharedMemoryMayHaveRaisedItUnread) {
  ReadOnce run;
  run.now_has(32, 15);
  EXPECT_EQ(run.pss.peak_of_run(0), 20 * kMib);  // at most a tenth more
  run.now_has(70, 15);                           // of files, which others may share
  EXPECT_EQ(run.pss.peak_of_run(0), std::nullopt);
}

TEST(PssPeak, IsKnownIfTheNextReadingShowsThatTheMemoryWasShared) {
  ReadOnce run;
  run.now_has(70, 15);
  run.pss.read(3, 0.001, run.ledger, Rollup{.rss = 70 * kMib, .pss = 21 * kMib, .anonymous = 15 * kMib});
  EXPECT_EQ(run.pss.peak_of_run(0), 21 * kMib);
}

TEST(PssPeak, IsUnknownIfAProcessStartedAndNoReadingFollowed) {
  ReadOnce run;
  run.ledger.sample(2, 2, tree(30, 15));  // a fork: its pages may be its parent's, or copies
  run.pss.observe(run.ledger);
  EXPECT_EQ(run.pss.peak_of_run(0), std::nullopt);
  run.pss.read(3, 0.001, run.ledger, Rollup{.rss = 60 * kMib, .pss = 22 * kMib, .anonymous = 30 * kMib});
  EXPECT_EQ(run.pss.peak_of_run(0), 22 * kMib);
}

TEST(PssPeak, IsUnknownIfTheKernelSawFarMoreThanTheReadings) {
  const ReadOnce run;
  EXPECT_EQ(run.pss.peak_of_run(31 * kMib), 20 * kMib);
  EXPECT_EQ(run.pss.peak_of_run(80 * kMib), std::nullopt);
}

TEST(PssPeak, OfNoReadingIsUnknown) {
  const PssSampler pss;
  EXPECT_EQ(pss.peak_of_run(0), std::nullopt);
}

// Readings at ticks have spent their share by then.
TEST(PssBudget, ATreeThatForksEarlyInAShortRunIsReadAtTheNextTick) {
  Course course;
  course.run(0.055, [](double) { return 10; });
  course.pss.read(course.time, 0.0012, course.ledger, Rollup{.rss = 10 * kMib, .pss = 10 * kMib});
  course.time += kTick;
  EXPECT_FALSE(course.at(11));  // a tenth more can wait
  course.ledger.sample(2, course.time, resident(10));
  EXPECT_FALSE(course.at(10));  // more processes may follow
  course.time += kTick;
  EXPECT_TRUE(course.at(11));
}

TEST(PssMean, IsThatOfRssLessTheSurplus) {
  Ledger ledger;
  ledger.start(0);
  PssSampler pss;
  pss.start(0);
  ledger.sample(1, 0, resident(100));
  pss.read(0, 0, ledger, Rollup{.rss = 100 * kMib, .pss = 90 * kMib});
  // The heap doubles and halves again between two readings of PSS; only the ledger sees that.
  ledger.sample(1, 1, resident(100));
  ledger.sample(1, 1, resident(200));
  ledger.sample(1, 3, resident(200));
  ledger.sample(1, 4, resident(100));
  pss.read(4, 0, ledger, Rollup{.rss = 100 * kMib, .pss = 70 * kMib});
  ledger.process_ended(1, 4);
  const double rss = (100 * 1 + 200 * 2 + 100 * 1) / 4.0;
  const double surplus = (10 + 30) / 2.0;
  EXPECT_EQ(pss.peak(), 90 * kMib);
  // The mean is at most the peak.
  EXPECT_DOUBLE_EQ(pss.mean(4, ledger), 90.0 * kMib);
  pss.read(4, 0, ledger, Rollup{.rss = 200 * kMib, .pss = 200 * kMib});
  EXPECT_DOUBLE_EQ(pss.mean(4, ledger), (rss - surplus) * kMib);
}

TEST(PssMean, IsALineWhereProcessesCameOrWent) {
  Ledger ledger;
  ledger.start(0);
  PssSampler pss;
  pss.start(0);
  ledger.sample(1, 0, resident(100));
  pss.read(0, 0, ledger, Rollup{.rss = 100 * kMib, .pss = 100 * kMib});
  ledger.sample(2, 1, resident(100));  // a fork
  ledger.sample(1, 2, resident(100));
  ledger.sample(2, 2, resident(100));
  pss.read(2, 0, ledger, Rollup{.rss = 200 * kMib, .pss = 120 * kMib});
  // From here on the ratio of PSS to RSS stays the same, and the child ends after one of two
  // seconds.
  ledger.process_ended(2, 3);
  ledger.process_ended(1, 4);
  EXPECT_DOUBLE_EQ(pss.mean(4, ledger), (2 * 110 + (200 + 100) * 0.6) / 4 * kMib);
}

TEST(PssMean, OfALateFirstReadingIsNoMoreThanWasResident) {
  Ledger ledger;
  ledger.start(0);
  PssSampler pss;
  pss.start(0);
  ledger.sample(1, 0, resident(10));
  ledger.sample(1, 1, resident(10));
  ledger.sample(1, 1, resident(60));
  pss.read(1, 0, ledger, Rollup{.rss = 60 * kMib, .pss = 60 * kMib});
  ledger.process_ended(1, 1);
  EXPECT_DOUBLE_EQ(pss.mean(1, ledger), 10.0 * kMib);
}

TEST(PssMean, OfOneReadingRisesFromNothing) {
  Ledger ledger;
  ledger.start(10);
  PssSampler pss;
  pss.start(10);
  EXPECT_DOUBLE_EQ(pss.mean(11, ledger), 0);
  ledger.sample(1, 11, resident(50));
  pss.read(11, 0, ledger, Rollup{.rss = 50 * kMib, .pss = 40 * kMib});
  ledger.process_ended(1, 11);
  EXPECT_DOUBLE_EQ(pss.mean(11, ledger), 20.0 * kMib);
  EXPECT_DOUBLE_EQ(pss.mean(10, ledger), 0);
}

}  // namespace
}  // namespace heapwright::meter
