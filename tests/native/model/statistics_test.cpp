// Tests the statistics of traces, by examples counted by hand and against a naive reader.
#include "model/statistics.h"

#include <gtest/gtest.h>

#include "model/statistics_json.h"
#include "workload.h"

namespace heapwright::model {
namespace {

using trace::Event;
using trace::Kind;

Event event(Kind kind, std::uint64_t time, std::uint64_t object, std::uint64_t size = 0,
            std::uint32_t thread = 0) {
  Event made;
  made.kind = kind;
  made.time = time;
  made.object = object;
  made.size = size;
  made.thread = thread;
  return made;
}

TEST(Statistics, CountsByHand) {
  Statistics s;
  s.add(event(Kind::kMalloc, 0, 0, 100));
  s.add(event(Kind::kCalloc, 10, 1, 17));
  s.add(event(Kind::kRealloc, 20, 0, 300));
  s.add(event(Kind::kFree, 30, 1, 0, 1));
  s.add(event(Kind::kMalloc, 40, 2, 0));
  s.add(event(Kind::kFree, 50, 77));  // of nothing
  EXPECT_EQ(s.events, 6U);
  EXPECT_EQ(s.allocations(), 3U);
  EXPECT_EQ(s.ticks, 4U);
  EXPECT_EQ(s.peak_live, 317U);
  EXPECT_EQ(s.peak_time, 20U);
  EXPECT_EQ(s.peak_event, 3U);
  EXPECT_EQ(s.peak_tick, 3U);
  EXPECT_EQ(s.live(), 300U);
  EXPECT_EQ(s.asked_bytes, 100U + 17U + 200U);
  EXPECT_EQ(s.remote_frees.count, 1U);
  EXPECT_EQ(s.unknown_object_events, 1U);
  EXPECT_EQ(s.chain_lengths[1].count, 1U);
  EXPECT_EQ(s.peak_rounded, 304U + 32U);
  EXPECT_EQ(s.rounded_live(), 304U + 16U);  // malloc(0) has an address of its own
  EXPECT_EQ(s.lifetimes[log_bin(1)].count, 1U);
  // 100 for 10 ns, 117 for 10, 317 for 10, 300 for 20.
  EXPECT_DOUBLE_EQ(s.mean_live(), (1000 + 1170 + 3170 + 6000) / 50.0);
  EXPECT_DOUBLE_EQ(s.mean_pages(), 4096.0);
}

// Of the readings near the peak the one with most live bytes is the true one, unless the live bytes
// are estimated: then it is the one with the largest error.
TEST(Statistics, LiveBytesOfASampleDoNotChooseTheReading) {
  for (const bool sampled : {false, true}) {
    Statistics s(4096, sampled ? 64 : 0);
    const auto read = [&s](std::uint64_t time, std::uint64_t kept, std::uint64_t bytes) {
      s.add(event(Kind::kMalloc, time, kept, bytes));
      for (const auto& [kind, value] : {std::pair{Kind::kFiles, 10U}, {Kind::kResident, 10'000U}}) {
        Event reading = event(kind, time, 0);
        reading.value = value;
        s.add(reading);
      }
    };
    read(10, 0, 1000);
    read(20, 1, 300);
    EXPECT_EQ(s.peak_reading().live, sampled ? 1000U : 1300U);
    read(30, 2, 1000);
    EXPECT_EQ(s.peak_reading().live, 2300U) << "so many more are not an error";
  }
}

TEST(Statistics, OfThePeaksLargeBlocksTheUntouchedPartIsKnown) {
  constexpr std::uint64_t kLarge = 1U << 20U;
  const auto touched = [](Kind kind, std::uint64_t object, std::uint64_t bytes) {
    Event ends = event(kind, 9, object);
    ends.touched = bytes;
    return ends;
  };
  Statistics s;
  s.add(event(Kind::kMalloc, 1, 0, 5 * kLarge));  // gone before the peak
  s.add(touched(Kind::kFree, 0, 0));
  s.add(event(Kind::kMalloc, 2, 1, 1000));  // small: taken to be used
  for (std::uint64_t object = 2; object < 8; ++object) {
    s.add(event(Kind::kCalloc, 3, object, kLarge));
  }
  EXPECT_EQ(s.peak_untouched, 6 * kLarge);
  s.add(touched(Kind::kFree, 2, kLarge));
  s.add(touched(Kind::kFree, 3, kLarge / 4));
  s.add(event(Kind::kFree, 9, 4));                 // nobody looked
  s.add(event(Kind::kRealloc, 9, 5, 2 * kLarge));  // has another size since the peak
  s.add(touched(Kind::kFree, 5, 2 * kLarge));
  s.add(event(Kind::kMalloc, 9, 8, kLarge));  // made since
  s.add(touched(Kind::kFree, 8, kLarge));
  s.add(touched(Kind::kTouched, 6, 2 * kLarge));  // live at the end: whole pages, so more than it has
  EXPECT_EQ(s.peak_live, 6 * kLarge + 1000);
  EXPECT_EQ(s.peak_untouched, 6 * kLarge - kLarge - kLarge / 4 - kLarge);
}

Event value(Kind kind, std::uint64_t time, std::uint64_t bytes) {
  Event made = event(kind, time, 0);
  made.value = bytes;
  return made;
}

TEST(Statistics, TheReadingAtThePeakIsOneWithManyLiveBytes) {
  constexpr std::uint64_t kLive = 1'000'000;
  const auto read = [](Statistics& s, std::uint64_t time, std::uint64_t resident, bool heap) {
    if (heap) {
      s.add(value(Kind::kHeap, time, resident));
    }
    s.add(value(Kind::kFiles, time, 0));
    s.add(value(Kind::kResident, time, resident));
  };
  for (const bool with_heap : {false, true}) {
    Statistics s;
    s.add(event(Kind::kMalloc, 1, 0, kLive));
    read(s, 2, 2 * kLive, with_heap);
    s.add(event(Kind::kFree, 3, 0));
    read(s, 4, 2 * kLive + 5'000, true);  // malloc returned nothing
    EXPECT_EQ(s.peak_resident, 2 * kLive + 5'000);
    const trace::Json split = to_json(s, {}, {}, 0)["resident_at_peak"];
    EXPECT_EQ(split["live_bytes"], kLive);
    EXPECT_EQ(split["resident_bytes"], 2 * kLive);
    EXPECT_EQ(split["free_bytes"].is_null(), !with_heap);
    read(s, 5, 3 * kLive, true);  // much higher
    EXPECT_EQ(to_json(s, {}, {}, 0)["resident_at_peak"]["resident_bytes"], 3 * kLive);
  }
}

TEST(Statistics, WithoutTimesAveragesAreOverEvents) {
  Statistics s;
  s.add(event(Kind::kMalloc, 0, 0, 100));
  s.add(event(Kind::kFree, 0, 0));
  EXPECT_FALSE(s.has_times());
  EXPECT_DOUBLE_EQ(s.mean_live(), 50.0);
}

TEST(Statistics, AgreesWithANaiveReader) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    const auto events = workload(seed, 3, static_cast<std::uint32_t>(1 + seed % 4));
    Statistics s;
    for (const Event& each : events) {
      s.add(each);
    }
    const Judged truth = judge(events);
    EXPECT_EQ(s.peak_live, truth.peak);
    EXPECT_EQ(s.live(), truth.live);
    EXPECT_EQ(s.allocations(), truth.allocations);
    EXPECT_EQ(s.frees(), truth.frees);
    EXPECT_EQ(s.remote_frees.count, truth.remote_frees);
    EXPECT_GE(s.peak_rounded, s.peak_live);
    EXPECT_GE(s.pages(s.peak_rounded), s.peak_rounded);
    std::uint64_t sized = 0;
    for (const Amount& bin : s.sizes) {
      sized += bin.count;
    }
    EXPECT_EQ(sized, s.ticks);
  }
}

TEST(Curve, MergesNeighboursAndLosesNoPeak) {
  Curve curve;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    curve.add(i, i == 77777 ? 1000000 : i % 1000);
  }
  EXPECT_LE(curve.points().size(), Curve::kPoints);
  EXPECT_GT(curve.points().size(), Curve::kPoints / 4);
  std::uint64_t events = 0;
  std::uint64_t peak = 0;
  for (const Curve::Point& point : curve.points()) {
    events += point.events;
    peak = std::max(peak, point.peak);
  }
  EXPECT_EQ(events, 100000U);
  EXPECT_EQ(peak, 1000000U);
  EXPECT_EQ(curve.points().back().time, 99999U);
}

TEST(LogBin, HoldsWhatItSays) {
  EXPECT_EQ(log_bin(0), 0U);
  for (unsigned bin = 1; bin < 64; ++bin) {
    EXPECT_EQ(log_bin(bin_low(bin)), bin);
    EXPECT_EQ(log_bin(2 * bin_low(bin) - 1), bin);
  }
}

}  // namespace
}  // namespace heapwright::model
