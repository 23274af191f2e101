// A model against the trace it was fitted to: what is made up from it must be a trace, and come near the first.
#include "model/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "model/fit.h"
#include "model/rand_malloc.h"
#include "model/scale.h"
#include "workload.h"

namespace heapwright::model {
namespace {

using trace::Event;

Model fitted(const std::vector<Event>& events, FitOptions options = {}) {
  Model model;
  trace::Loss loss;
  std::string error;
  EXPECT_TRUE(fit([&] { return std::make_unique<VectorSource>(events); }, options, model, loss, error))
      << error;
  return model;
}

std::vector<Event> made_up(const Model& model, std::uint64_t seed = 1) {
  const auto source = make_windows_source(model, seed);
  EXPECT_TRUE(source->header().synthetic);
  return all_of(*source);
}

void expect_near(double value, double truth, double part, const char* what) {
  EXPECT_LE(std::abs(value - truth), part * truth + 1) << what << ": " << value << " for " << truth;
}

TEST(Synth, KeepsThePeakAndTheCounts) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const auto events = workload(seed, 1 + seed % 5, static_cast<std::uint32_t>(1 + seed % 3));
    const Judged truth = judge(events);
    const Judged found = judge(made_up(fitted(events, {.script = 200})));
    expect_near(static_cast<double>(found.peak), static_cast<double>(truth.peak), 0.02, "peak");
    expect_near(static_cast<double>(found.live), static_cast<double>(truth.live), 0.02, "live at the end");
    expect_near(static_cast<double>(found.allocations), static_cast<double>(truth.allocations), 0.01,
                "allocations");
    expect_near(static_cast<double>(found.reallocs), static_cast<double>(truth.reallocs), 0.03, "reallocs");
    expect_near(static_cast<double>(found.frees), static_cast<double>(truth.frees), 0.01, "frees");
    EXPECT_EQ(found.threads.size(), truth.threads.size());
    expect_near(static_cast<double>(found.remote_frees), static_cast<double>(truth.remote_frees), 0.1,
                "remote frees");
  }
}

// A sawtooth far finer than the windows: each tooth is built up and freed at once.
TEST(Synth, KeepsPeaksWithinWindows) {
  std::vector<Event> events;
  std::uint64_t made = 0;
  for (int tooth = 0; tooth < 2000; ++tooth) {
    const std::uint64_t first = made;
    for (int i = 0; i < 50; ++i) {
      events.push_back({.time = made, .object = made, .size = 64});
      ++made;
    }
    for (std::uint64_t object = first; object < made; ++object) {
      events.push_back({.kind = trace::Kind::kFree, .time = made, .object = object});
    }
  }
  const Judged found = judge(made_up(fitted(events)));
  EXPECT_GT(found.peak, 50U * 64 * 8 / 10);
  EXPECT_LT(found.peak, 50U * 64 * 2);  // where a window cuts a tooth, two can overlap
}

TEST(Synth, IsTheSameForTheSameSeed) {
  const Model model = fitted(workload(3));
  EXPECT_EQ(made_up(model, 5), made_up(model, 5));
  EXPECT_NE(made_up(model, 5), made_up(model, 6));
}

TEST(Synth, AFewBlocksAreKeptOneByOne) {
  std::vector<Event> events;
  for (std::uint64_t i = 0; i < 20; ++i) {
    events.push_back({.time = 10 * i, .object = i, .size = 1000 + i * i});
    if (i % 3 == 2) {
      events.push_back({.kind = trace::Kind::kRealloc, .time = 10 * i, .object = i - 1, .size = 5000});
      events.push_back({.kind = trace::Kind::kFree, .time = 10 * i, .object = i - 2, .touched = 4096});
    }
  }
  const std::vector<Event> found = made_up(fitted(events));
  ASSERT_EQ(found.size(), events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(found[i].kind, events[i].kind);
    EXPECT_EQ(found[i].object, events[i].object);
    EXPECT_EQ(found[i].size, events[i].size);
    EXPECT_EQ(found[i].touched, events[i].touched);
  }
}

TEST(Synth, ScalesTheHeap) {
  const auto events = workload(11, 3);
  const Judged truth = judge(events);
  for (const double heap : {0.25, 3.0}) {
    Model model = fitted(events);
    ASSERT_TRUE(scale(model, heap, 1));
    const Judged found = judge(made_up(model));
    expect_near(static_cast<double>(found.peak), heap * static_cast<double>(truth.peak), 0.05, "peak");
  }
}

TEST(Synth, ScalesTimeAtTheSameHeap) {
  const auto events = workload(12, 3);
  const Judged truth = judge(events);
  for (const double time : {0.5, 4.0}) {
    Model model = fitted(events);
    ASSERT_TRUE(scale(model, 1, time));
    const Judged found = judge(made_up(model));
    expect_near(static_cast<double>(found.peak), static_cast<double>(truth.peak), 0.1, "peak");
    EXPECT_EQ(found.allocations > truth.allocations, time > 1);
  }
}

TEST(Synth, RefusesWhatIsTooLarge) {
  Model model = fitted(workload(1, 1));
  EXPECT_FALSE(scale(model, 1e6, 1e6));
}

TEST(Fit, KeepsToItsSize) {
  const auto events = workload(21, 6, 3);
  const Model model = fitted(events, {.bytes = 20000});
  EXPECT_LE(to_json(model).size(), 20000U);
  const double truth = static_cast<double>(judge(events).peak);
  expect_near(static_cast<double>(judge(made_up(model)).peak), truth, 0.05, "peak");
}

TEST(Fit, SaysThatThereIsNothing) {
  Model model;
  trace::Loss loss;
  std::string error;
  EXPECT_FALSE(
      fit([] { return std::make_unique<VectorSource>(std::vector<Event>{}); }, {}, model, loss, error));
  EXPECT_NE(error.find("no allocation"), std::string::npos);
}

TEST(RandMalloc, KeepsCountsAndMeanLifetimes) {
  const auto events = workload(31, 2);
  std::vector<MeanClass> means;
  Model totals;
  trace::Loss loss;
  std::string error;
  ASSERT_TRUE(
      fit_rand_malloc([&] { return std::make_unique<VectorSource>(events); }, means, totals, loss, error));
  const auto source = make_rand_malloc_source(means, 1000, 1);
  const Judged found = judge(all_of(*source));
  const Judged truth = judge(events);
  EXPECT_EQ(found.reallocs, 0U);
  EXPECT_EQ(found.allocations, truth.allocations + truth.reallocs);
  EXPECT_EQ(found.threads.size(), 1U);
}

bool reads(const std::string& text) {
  Plan plan;
  std::string error;
  std::FILE* file = ::fmemopen(const_cast<char*>(text.data()), text.size(), "r");
  const bool sound = read_plan(file, plan, error);
  (void)std::fclose(file);
  EXPECT_EQ(sound, error.empty());
  return sound;
}

TEST(Plan, BelievesNothing) {
  const std::string head = "heapwright-plan 2 windows 0 10 10 0 1 ";
  const std::string one = "1 1 16 10 0 0 0 0 -1 0 1 0 1 0 0 ";    // classes: one, of size 16
  const std::string window = "1 10 10 0 7 0 0 0 500 500 16 16 ";  // one; its part
  const std::string end = " 0 0 0 0";                             // handed, resizes, script, ends of threads
  EXPECT_TRUE(reads(head + one + window + "5 0 10 0 0 0" + end));
  EXPECT_FALSE(reads(head + one + window + "5 7 10 0 0 0" + end));  // no class 7
  EXPECT_FALSE(reads(head + one + window + "4 0 10 0 0" + end));    // a row ends early
  EXPECT_FALSE(reads(head + one + window + "5 0 -1 0 0 0" + end));
  EXPECT_FALSE(reads(head + one + window + "99999999999999"));
  EXPECT_FALSE(reads(head + one + window + "5 0 10 0 0 0 0 3 0 3 1 0 0"));               // no class 3
  EXPECT_FALSE(reads(head + one + window + "5 0 10 0 0 0 4 0 8 1 1 0 0 0"));             // no group 8
  EXPECT_FALSE(reads(head + one + window + "5 0 10 0 0 0 0 0 0 3 1 0 500"));             // no thread 1
  EXPECT_FALSE(reads(head + one + window + "5 0 10 0 0 0 0 0 0 3 0 1 500"));             // no window 1
  EXPECT_FALSE(reads(head + one + "1 10 10 0 7 9 0 0 500 500 0 0 5 0 10 0 0 0" + end));  // no group 9
  EXPECT_FALSE(reads(head + one + "1 10 10 0 7 0 0 0 500 1001 0 0 5 0 10 0 0 0" + end));
  EXPECT_FALSE(reads(head + "1 0 "));
  EXPECT_FALSE(reads("heapwright-plan 1 windows 0"));
  EXPECT_FALSE(reads("heapwright-plan 2 other 0"));
  EXPECT_FALSE(reads("x"));
}

}  // namespace
}  // namespace heapwright::model
