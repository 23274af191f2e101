// Tests the counts of a sample against those of the trace that it was drawn from.
#include "model/sample_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "model/statistics_json.h"
#include "trace/sample.h"
#include "workload.h"

namespace heapwright::model {
namespace {

using trace::Event;
using trace::Kind;

Statistics statistics_of(const std::vector<Event>& events) {
  Statistics statistics;
  for (const Event& event : events) {
    statistics.add(event);
  }
  return statistics;
}

Statistics from_sample(const std::vector<Event>& events, std::uint64_t rate, std::uint64_t seed) {
  trace::SampleSource sample(std::make_unique<trace::VectorSource>(events), rate, seed);
  Statistics statistics(trace::kUnstatedPageBytes, rate);
  count_sample(sample, statistics);
  return statistics;
}

TEST(SampleStatistics, ASampleOfAllObjectsHasTheCountsOfTheTrace) {
  for (const std::uint32_t threads : {1U, 3U}) {
    const auto events = workload(5, 3, threads);
    Statistics truth = statistics_of(events);
    Statistics found = from_sample(events, 1, 1);
    trace::Json expected = to_json(truth, {}, {}, 0);
    trace::Json json = to_json(found, {}, {}, 0);
    if (threads > 1) {  // the ticks of other threads during a short lifetime are estimated
      json.erase("lifetimes_allocations");
      expected.erase("lifetimes_allocations");
    }
    EXPECT_EQ(json, expected);
  }
}

// Each figure is within four standard errors of its mean over samples.
TEST(SampleStatistics, FiguresAreUnbiased) {
  struct Figure {
    const char* name;
    std::function<double(Statistics&)> of;
    double bias = 0;  // share of the figure that is allowed besides the error
  };
  const std::vector<Figure> figures{
      {"allocations", [](Statistics& s) { return static_cast<double>(s.allocations()); }},
      {"ticks", [](Statistics& s) { return static_cast<double>(s.ticks); }, 0.001},  // numbers are rounded
      {"frees", [](Statistics& s) { return static_cast<double>(s.frees()); }},
      {"remote frees", [](Statistics& s) { return static_cast<double>(s.remote_frees.count); }},
      {"requested bytes", [](Statistics& s) { return static_cast<double>(s.asked_bytes); }},
      {"mean of live bytes", [](Statistics& s) { return s.mean_live(); }},
      {"live bytes at the end", [](Statistics& s) { return static_cast<double>(s.live()); }},
      {"live objects at the end", [](Statistics& s) { return static_cast<double>(s.live_objects()); }},
      {"objects of a middling lifetime",
       [](Statistics& s) {
         return static_cast<double>(s.lifetimes[7].count + s.lifetimes[8].count + s.lifetimes[9].count);
       },
       0.01},  // the ticks of other threads during a lifetime are estimated
      {"growth", [](Statistics& s) { return static_cast<double>(s.resized_up.bytes); }},
  };
  constexpr std::uint64_t kSeeds = 48;
  for (const std::uint32_t threads : {1U, 3U}) {
    const auto events = workload(8, 4, threads);
    Statistics truth = statistics_of(events);
    std::vector<double> sums(figures.size());
    std::vector<double> squares(figures.size());
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      Statistics found = from_sample(events, 32, seed);
      for (std::size_t i = 0; i < figures.size(); ++i) {
        const double value = figures[i].of(found);
        sums[i] += value;
        squares[i] += value * value;
      }
    }
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const double mean = sums[i] / kSeeds;
      const double variance = std::fmax(0.0, squares[i] / kSeeds - mean * mean) / (kSeeds - 1);
      const double expected = figures[i].of(truth);
      EXPECT_NEAR(mean, expected, 4 * std::sqrt(variance) + figures[i].bias * expected)
          << figures[i].name << ", " << threads << " threads";
    }
  }
}

// Half of the threads have no object in the sample. The program's ticks are known all the same.
TEST(SampleStatistics, TicksOfShortThreadsCountOnce) {
  constexpr std::uint64_t kThreads = 2000;
  constexpr std::uint64_t kTicks = 50;
  std::vector<Event> events;
  std::uint64_t objects = 0;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    for (std::uint64_t i = 0; i < kTicks; ++i, ++objects) {
      events.push_back(
          {.kind = Kind::kMalloc, .thread = thread, .time = objects, .object = objects, .size = 100});
      events.push_back({.kind = Kind::kFree, .thread = thread, .time = objects, .object = objects});
    }
    events.push_back({.kind = Kind::kThreadEnd, .thread = thread, .time = objects});
  }
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::uint64_t found = from_sample(events, 64, seed).ticks;
    EXPECT_NEAR(static_cast<double>(found), kThreads * kTicks, kThreads * kTicks / 200.0) << "seed " << seed;
  }
}

// One object stands for 2^40 objects. The time depends only on the sample.
TEST(SampleStatistics, TakesNoTimeForObjectsThatAreNotThere) {
  trace::Header header;
  header.sample = trace::Header::kMaxSample;
  trace::VectorSource source({{.kind = Kind::kTicks, .value = header.sample},
                              {.kind = Kind::kMalloc, .object = 0, .size = 24},
                              {.kind = Kind::kTicks, .value = 6},
                              {.kind = Kind::kFree, .time = 9, .object = 0}},
                             header);
  Statistics statistics(trace::kUnstatedPageBytes, header.sample);
  count_sample(source, statistics);
  EXPECT_EQ(statistics.ticks, header.sample + 6);
  EXPECT_EQ(statistics.lifetimes[log_bin(5)].count, statistics.frees());
  EXPECT_EQ(statistics.live(), 0U);
}

}  // namespace
}  // namespace heapwright::model
