// Compares a synthetic trace with the trace that its model was fitted to: it must be a valid trace
// and come near the recorded one.
#include "model/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>

#include "model/fit.h"
#include "model/model_json.h"
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
  EXPECT_TRUE(fit([&] { return std::make_unique<trace::VectorSource>(events); }, options, model, loss, error))
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

// A damaged model may begin more lifetimes than its window has ticks.
TEST(Synth, NeedsMemoryForAllLifetimesOfAWindow) {
  constexpr double kLifetimes = 1ULL << 40U;
  Model brief;
  brief.windows.resize(1);
  brief.windows[0].ticks = 1;
  brief.windows[0].rows.resize(1);
  brief.windows[0].rows[0].brief[0] = 1ULL << 40U;
  EXPECT_GT(memory_needed(brief), kLifetimes);
  Model old = brief;
  old.windows[0].rows[0].brief[0] = 0;
  old.windows[0].rows[0].old[0] = 1ULL << 40U;
  EXPECT_GT(memory_needed(old), kLifetimes);
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
  EXPECT_FALSE(fit([] { return std::make_unique<trace::VectorSource>(std::vector<Event>{}); }, {}, model,
                   loss, error));
  EXPECT_NE(error.find("no allocation"), std::string::npos);
}

TEST(RandMalloc, KeepsCountsAndMeanLifetimes) {
  const auto events = workload(31, 2);
  RandMallocModel model;
  trace::Loss loss;
  std::string error;
  ASSERT_TRUE(
      fit_rand_malloc([&] { return std::make_unique<trace::VectorSource>(events); }, model, loss, error));
  model.nanoseconds = 1000;
  const auto source = make_rand_malloc_source(model, 1);
  const Judged found = judge(all_of(*source));
  const Judged truth = judge(events);
  EXPECT_EQ(found.reallocs, 0U);
  EXPECT_EQ(found.allocations, truth.allocations + truth.reallocs);
  EXPECT_EQ(found.threads.size(), 1U);
}

// A model of one class and one window, which a test changes at one place.
Json valid_model() {
  return Json::parse(R"({"schema": "heapwright-model", "version": 2, "kind": "windows",
      "ticks": 10, "ns": 10, "events": 10, "allocations": 10, "peak_live_bytes": 160, "script_from": 17,
      "sized_frees": 0, "threads": 1,
      "classes": [{"sizes": [16, 10], "callocs": 0, "alignments": [], "in_order": 0, "in_reverse": 0,
                   "touched": -1, "brief": [], "threads": [0, 1], "freed_own": 0, "freed_by": []}],
      "windows": [{"ticks": 10, "ns": 10, "turns": 0, "parts": [0, 0, 0, 500, 500, 16, 16],
                   "rows": [0, 10, 0, 0, 0], "handed": [], "resizes": []}],
      "script": [], "thread_ends": [], "libraries": [], "origin": {}})");
}

// Reads a model; returns the reason why it is refused, or "".
std::string refusal(const std::string& text) {
  AnyModel model;
  std::string error;
  const bool read = read_model(text, model, error);
  EXPECT_EQ(read, error.empty());
  return error;
}

// The same for the valid model with the value at a JSON pointer replaced.
std::string refusal(const char* pointer, Json value) {
  Json model = valid_model();
  model[Json::json_pointer(pointer)] = std::move(value);
  return refusal(model.dump());
}

TEST(ReadModel, TakesWhatFitWrites) {
  const Model model = fitted(workload(3, 2));
  Json whole = to_json(model);
  whole["schema"] = "heapwright-model";
  whole["version"] = 2;
  AnyModel read;
  std::string error;
  ASSERT_TRUE(read_model(whole.dump(), read, error)) << error;
  EXPECT_EQ(judge(made_up(std::get<Model>(read))).peak, judge(made_up(model)).peak);
}

TEST(ReadModel, RefusesContradictions) {
  EXPECT_EQ(refusal(valid_model().dump()), "");
  const char* const rows = "/windows/0/rows";
  EXPECT_EQ(refusal(rows, {7, 10, 0, 0, 0}), "invalid model: there is no class 7");
  EXPECT_EQ(refusal(rows, {0, 10, 0, 0}), "invalid model: a list ends early");
  EXPECT_EQ(refusal(rows, {0, -1, 0, 0, 0}), "invalid model: -1 is not a number from 0 to 281474976710656");
  EXPECT_EQ(refusal(rows, {0, 0.5, 0, 0, 0}), "invalid model: 0.5 is not a whole number from 0 to 2^48");
  EXPECT_EQ(refusal(rows, {0, 10, 0, 1, 3, 10, 0}),
            "invalid model: a window has lifetimes of a length that their class does not have");
  EXPECT_EQ(refusal(rows, 1), "invalid model: \"rows\" is not a list of at most 4194304 items");
  EXPECT_EQ(refusal("/windows/0/handed", {0, 8, 1, 1}), "invalid model: there is no group 8");
  EXPECT_EQ(refusal("/windows/0/resizes", {0, 3, 1}), "invalid model: there is no class 3");
  EXPECT_EQ(refusal("/windows/0/parts/0", 9), "invalid model: there is no group 9");
  EXPECT_EQ(refusal("/windows/0/parts/4", 1001), "invalid model: 1001 is not a number from 0 to 1000");
  EXPECT_EQ(refusal("/thread_ends", {1, 0, 500}), "invalid model: there is no thread 1");
  EXPECT_EQ(refusal("/thread_ends", {0, 1, 500}), "invalid model: there is no window 1");
  EXPECT_EQ(refusal("/classes/0/sizes", Json::array()), "invalid model: a class has no size");
  EXPECT_EQ(refusal("/classes/0", 3), "invalid model: it has no \"sizes\"");
  EXPECT_EQ(refusal("/classes/0/alignments", {24, 1}),
            "invalid model: the alignment 24 is not a power of two");
  EXPECT_EQ(refusal("/script", {0, 5, 70000, 4, 0, 0, 0, 0, 0, -1}),
            "invalid model: the script contradicts itself");
  EXPECT_EQ(refusal("/version", 1), "invalid model: it is not of version 2");
  EXPECT_EQ(refusal("/kind", "other"), "invalid model: there is no model of the kind \"other\"");
  Json deep = valid_model();
  deep["ticks"] = "deep";
  std::string text = deep.dump();  // dump() of a deep list takes too much stack with sanitizers
  text.replace(text.find("\"deep\""), 6, std::string(5000, '[') + std::string(5000, ']'));
  EXPECT_EQ(refusal(text), "invalid model: a list or an object is not a whole number from 0 to 2^48");
  EXPECT_EQ(refusal("x"), "invalid model: it is not JSON");
  EXPECT_EQ(refusal("[]"), "invalid model: it is not a JSON object");
}

}  // namespace
}  // namespace heapwright::model
