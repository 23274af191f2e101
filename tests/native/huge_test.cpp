// Tests when huge pages are counted, and their peak, mean and share, on a synthetic clock; the
// machine's counts; and the state that the environment asks for.
#include "huge.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace heapwright::meter {
namespace {

constexpr std::uint64_t kMib = 1U << 20U;

Rollup memory(std::uint64_t anonymous, std::uint64_t huge) {
  return {
      .rss = anonymous * kMib, .pss = anonymous * kMib, .anonymous = anonymous * kMib, .huge = huge * kMib};
}

TEST(HugePages, MeanAndShareAreStraightLinesBetweenReadings) {
  HugePageSampler sampler;
  sampler.start(10);
  sampler.add(12, memory(100, 50));  // 100 MiB s of anonymous memory, 50 MiB s in huge pages
  sampler.add(14, memory(100, 0));   // 200 and 50
  EXPECT_EQ(sampler.samples(), 2U);
  EXPECT_EQ(sampler.peak(), 50 * kMib);
  EXPECT_DOUBLE_EQ(sampler.mean(16), 100.0 * kMib / 6);
  EXPECT_DOUBLE_EQ(sampler.share(16).value_or(0), 100.0 / 500);
}

TEST(HugePages, WithoutAReadingOrMemoryThereIsNoShare) {
  HugePageSampler sampler;
  sampler.start(0);
  EXPECT_FALSE(sampler.share(1).has_value());
  EXPECT_EQ(sampler.mean(0), 0);
  sampler.add(1, Rollup{.rss = kMib});
  EXPECT_FALSE(sampler.share(2).has_value());
}

TEST(HugePages, ReadingsStayInTheirBudget) {
  constexpr double kCost = 0.007;  // seconds: a heap of 1 GiB
  constexpr int kTicks = 6000;
  constexpr double kTick = 0.01;
  HugePageSampler sampler;
  sampler.start(0);
  int readings = 0;
  for (int tick = 1; tick <= kTicks; ++tick) {
    const double time = tick * kTick;
    if (sampler.due(time, 1024 * kMib, false)) {
      sampler.spend(time, kCost, 1024 * kMib);
      ++readings;
    }
  }
  EXPECT_GE(readings, 30);
  EXPECT_LE(sampler.spent(), 0.005 * kTicks * kTick + kCost);
}

TEST(HugePages, TheFirstReadingWaitsUntilLibrariesAreLoadedOrTheProgramExits) {
  HugePageSampler sampler;
  sampler.start(0);
  EXPECT_FALSE(sampler.due(0.005, kMib, false));
  EXPECT_TRUE(sampler.due(0.005, kMib, true));
  EXPECT_TRUE(sampler.due(0.01, kMib, false));
}

TEST(HugePages, AnExitIsReadOnlyIfThatCostsLittle) {
  HugePageSampler sampler;
  sampler.start(0);
  sampler.spend(0.1, 0.001, 100 * kMib);
  EXPECT_TRUE(sampler.due(0.2, 100 * kMib, true));
  EXPECT_FALSE(sampler.due(0.2, 100 * kMib, false));
  EXPECT_FALSE(sampler.due(0.2, 10000 * kMib, true));  // the walk would take 100 ms
}

TEST(ThpEvents, AreReadByTheirWholeNames) {
  const auto found = parse_thp_events(
      "nr_free 1\nthp_fault_alloc 3040\nthp_fault_fallback 7\nthp_collapse_alloc 143\n"
      "thp_collapse_alloc_failed 9\n");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->faults, 3040U);
  EXPECT_EQ(found->collapses, 143U);
  EXPECT_FALSE(parse_thp_events("nr_free 1\nthp_fault_alloc_other 3\n").has_value());
  EXPECT_FALSE(parse_thp_events("").has_value());
}

// Returns PR_GET_THP_DISABLE of a child that obeyed the variable.
int disabled_with(const char* value) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("HEAPWRIGHT_HUGE_PAGES", value, 1);
    _exit(obey_huge_pages_variable() ? prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) : 99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(HugePages, TheEnvironmentForbidsThem) {
  const int before = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0);
  EXPECT_EQ(disabled_with("never"), 1);
  EXPECT_EQ(disabled_with(""), before);
  EXPECT_EQ(disabled_with("always"), before);
}

}  // namespace
}  // namespace heapwright::meter
