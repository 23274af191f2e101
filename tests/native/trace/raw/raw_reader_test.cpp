// Tests the reader of raw files: the merge, object ids, reallocation, and damaged files.
#include "trace/raw/raw_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "raw_builder.h"
#include "read_built.h"

namespace heapwright::trace {
namespace {

using raw::kBlockBytes;
using raw::Other;
using raw::Tag;
using recorder::RawBuilder;
using recorder::TemporaryFile;

// Kind, thread and object of an event; thread starts are left out.
struct Step {
  Kind kind;
  std::uint32_t thread;
  std::uint64_t object;
  bool operator==(const Step&) const = default;
};
void PrintTo(const Step& step, std::ostream* out) {
  *out << "{" << static_cast<int>(step.kind) << ", thread " << step.thread << ", object " << step.object
       << "}";
}

std::vector<Step> steps(const Read& read) {
  std::vector<Step> result;
  for (const Event& event : read.events) {
    if (event.kind != Kind::kThreadStart) {
      result.push_back({event.kind, event.thread, event.object});
    }
  }
  return result;
}

TEST(RawReader, MergesWritersByTheirStamps) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  raw.event(1, 150, Tag::kMalloc, 0x2000, 20);
  raw.event(1, 300, Tag::kFree, 0x1000);
  raw.event(0, 400, Tag::kMalloc, 0x1000, 30);
  raw.event(0, 500, Tag::kFreeSized, 0x2000);
  const Read read = read_built(raw);
  EXPECT_EQ(steps(read), (std::vector<Step>{{Kind::kMalloc, 0, 0},
                                            {Kind::kMalloc, 1, 1},
                                            {Kind::kFree, 1, 0},
                                            {Kind::kMalloc, 0, 2},
                                            {Kind::kFreeSized, 0, 1}}));
  EXPECT_EQ(read.events.back().size, 20U);
  EXPECT_EQ(read.events.back().time, 500U * 8);
  EXPECT_EQ(read.loss.events, 0U);
  EXPECT_FALSE(read.loss.cut_short);
}

// The stamps are equal, and only one order is possible.
TEST(RawReader, EqualStampsAreOrderedByWhatIsPossible) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kFree, 0x1000);  // writer 0 comes first if stamps are equal
  raw.event(1, 100, Tag::kMalloc, 0x1000, 10);
  const Read read = read_built(raw);
  EXPECT_EQ(steps(read), (std::vector<Step>{{Kind::kMalloc, 1, 0}, {Kind::kFree, 0, 0}}));
  EXPECT_EQ(read.loss.events, 0U);
}

TEST(RawReader, WhatIsFurtherApartIsInverted) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kFree, 0x1000);
  raw.event(1, 200, Tag::kMalloc, 0x1000, 10);
  const Read read = read_built(raw);
  EXPECT_EQ(steps(read), (std::vector<Step>{{Kind::kMalloc, 1, 0}}));
  EXPECT_EQ(read.loss.events, 1U);
}

TEST(RawReader, AnAddressMadeTwiceEndsTheFirst) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  raw.event(0, 200, Tag::kMalloc, 0x1000, 20);
  raw.event(0, 300, Tag::kFree, 0x1000);
  const Read read = read_built(raw);
  EXPECT_EQ(steps(read),
            (std::vector<Step>{
                {Kind::kMalloc, 0, 0}, {Kind::kFree, 0, 0}, {Kind::kMalloc, 0, 1}, {Kind::kFree, 0, 1}}));
  EXPECT_EQ(read.loss.events, 1U);
}

// Another thread gets the old address of an object during its reallocation.
TEST(RawReader, AReallocatedObjectKeepsItsId) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  raw.event(0, 200, Tag::kReallocBegin, 0x1000);
  raw.event(1, 300, Tag::kMalloc, 0x1000, 5);
  raw.event(0, 400, Tag::kRealloc, 0x3000, 99);
  raw.event(0, 500, Tag::kFree, 0x3000);
  raw.event(1, 600, Tag::kFree, 0x1000);
  const Read read = read_built(raw);
  EXPECT_EQ(steps(read), (std::vector<Step>{{Kind::kMalloc, 0, 0},
                                            {Kind::kMalloc, 1, 1},
                                            {Kind::kRealloc, 0, 0},
                                            {Kind::kFree, 0, 0},
                                            {Kind::kFree, 1, 1}}));
  EXPECT_EQ(read.loss.events, 0U);
}

TEST(RawReader, AFailedReallocationLeavesTheObject) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  raw.event(0, 200, Tag::kReallocBegin, 0x1000);
  raw.other(0, 300, Other::kReallocFailed, 0);
  raw.event(0, 400, Tag::kReallocBegin, 0x1000);
  raw.other(0, 500, Other::kReallocFreed, 0);
  EXPECT_EQ(steps(read_built(raw)), (std::vector<Step>{{Kind::kMalloc, 0, 0}, {Kind::kFree, 0, 0}}));
}

// A signal handler between the two records of a reallocation reallocates another object.
TEST(RawReader, ReallocationsNest) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  raw.event(0, 110, Tag::kMalloc, 0x2000, 11);
  raw.event(0, 200, Tag::kReallocBegin, 0x1000);
  raw.event(0, 210, Tag::kReallocBegin, 0x2000);
  raw.event(0, 220, Tag::kRealloc, 0x5000, 22);
  raw.event(0, 230, Tag::kRealloc, 0x6000, 33);
  const Read read = read_built(raw);
  ASSERT_EQ(read.events.size(), 5U);
  EXPECT_EQ(read.events[3].object, 1U);
  EXPECT_EQ(read.events[4].object, 0U);
}

TEST(RawReader, WhatAForkedProcessHasFromItsParentIsNoLoss) {
  RawBuilder raw;
  raw.header().forked = 1;
  raw.event(0, 100, Tag::kFree, 0x1000);
  raw.event(0, 200, Tag::kReallocBegin, 0x2000);
  raw.event(0, 300, Tag::kRealloc, 0x3000, 50);
  const Read read = read_built(raw);
  EXPECT_EQ(steps(read), (std::vector<Step>{{Kind::kMalloc, 0, 0}}));
  EXPECT_NE(read.loss.why.find("2 calls of free or realloc"), std::string::npos) << read.loss.why;
  EXPECT_EQ(read.loss.events, 0U);
}

TEST(RawReader, WhatTheAllocatorMadeForItselfMayBeFreedByAnybody) {
  RawBuilder raw;
  raw.writer(0);
  recorder::put_other_address(raw.writer(0), Other::kInternalBlock, 0x1000);
  raw.event(0, 200, Tag::kFree, 0x1000);
  const Read read = read_built(raw);
  EXPECT_TRUE(steps(read).empty());
  EXPECT_EQ(read.loss.events, 0U);
}

TEST(RawReader, AThreadThatComesBackAfterItsEndIsANewOne) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  raw.other(0, 200, Other::kThreadEnd, 0);
  raw.event(0, 300, Tag::kFree, 0x1000);
  const Read read = read_built(raw);
  EXPECT_EQ(steps(read),
            (std::vector<Step>{{Kind::kMalloc, 0, 0}, {Kind::kThreadEnd, 0, 0}, {Kind::kFree, 1, 0}}));
}

TEST(RawReader, WaitingForAProcessorIsNoTime) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  raw.other(0, 1100, Other::kWaited, 6000);
  raw.event(0, 1110, Tag::kFree, 0x1000);
  raw.other(0, 1120, Other::kWaited,
            1'000'000);  // longer than the time since the last record: the time stands still
  raw.event(0, 1130, Tag::kMalloc, 0x1000, 10);
  const Read read = read_built(raw);
  ASSERT_EQ(read.events.size(), 4U);  // the first is the start of the thread
  EXPECT_EQ(read.events[1].time, 800U);
  EXPECT_EQ(read.events[2].time, 1110U * 8 - 6000);
  EXPECT_EQ(read.events[3].time, read.events[2].time + 20 * 8 - 10 * 8);
}

TEST(RawReader, TimePassesWhileAnotherThreadGoesOn) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  raw.event(1, 900, Tag::kMalloc, 0x2000, 10);
  raw.other(0, 1100, Other::kWaited, 6000);
  raw.event(0, 1100, Tag::kFree, 0x1000);
  const Read read = read_built(raw);
  ASSERT_EQ(read.events.size(), 5U);
  EXPECT_EQ(read.events.back().time, 1100U * 8 - 200 * 8);
}

TEST(RawReader, PrefixesAndTheRest) {
  RawBuilder raw;
  raw::FileHeader& h = raw.header();
  for (int i = 0; i < 3; ++i) {
    std::snprintf(h.phase[i].name, sizeof(h.phase[i].name), "%s", i == 1 ? "serve" : "load");
    h.phase[i].ready.store(1);
  }
  h.phases.store(3);
  h.failed.store(4);
  raw.other(0, 10, Other::kAlignment, 6);
  raw.event(0, 10, Tag::kMalloc, 0x1000, 100'000);
  raw.other(0, 20, Other::kTouched, 8192);
  recorder::put_other_address(raw.writer(0), Other::kLive, 0x1000);
  raw.other(0, 30, Other::kTouched, 4096);
  raw.event(0, 30, Tag::kFree, 0x1000);
  raw.other(0, 40, Other::kPhase, 2);
  raw.other(0, 50, Other::kResident, 1 << 20);
  raw.other(0, 60, Other::kFork, 4711);
  const Read read = read_built(raw);
  ASSERT_EQ(read.events.size(), 7U);
  EXPECT_EQ(read.events[1], (Event{.kind = Kind::kAligned, .time = 80, .size = 100'000, .alignment = 64}));
  EXPECT_EQ(read.events[2], (Event{.kind = Kind::kTouched, .time = 160, .touched = 8192}));
  EXPECT_EQ(read.events[3], (Event{.kind = Kind::kFree, .time = 240, .touched = 4096}));
  EXPECT_EQ(read.events[4], (Event{.kind = Kind::kPhase, .time = 320, .value = 0}));
  EXPECT_EQ(read.events[5], (Event{.kind = Kind::kResident, .time = 400, .value = 1 << 20}));
  EXPECT_EQ(read.events[6], (Event{.kind = Kind::kFork, .time = 480, .value = 4711}));
  EXPECT_EQ(read.header.phases, (std::vector<std::string>{"load", "serve"}));
  EXPECT_EQ(read.loss.failed_calls, 4U);
}

// 3 writers with about 60,000 events in several blocks each, which free each other's memory.
RawBuilder random_recording(unsigned seed) {
  std::mt19937_64 random(seed);
  RawBuilder raw;
  std::vector<std::uint64_t> live;
  std::uint64_t now = 0;
  for (int i = 0; i < 60'000; ++i) {
    now += 10 + random() % 50;
    const auto writer = static_cast<std::uint32_t>(random() % 3);
    if (live.empty() || random() % 5 < 3) {
      live.push_back(0x100000000 + (random() % 4096 * 100'000 + static_cast<std::uint64_t>(i)) * 0x10000);
      raw.event(writer, now, random() % 9 == 0 ? Tag::kCalloc : Tag::kMalloc, live.back(), random() % 5000);
    } else {
      std::swap(live[random() % live.size()], live.back());
      if (random() % 8 == 0) {
        raw.event(writer, now, Tag::kReallocBegin, live.back());
        live.back() += 1 << 10;
        raw.event(writer, now + 5, Tag::kRealloc, live.back(), random() % 9000);
        continue;
      }
      raw.event(writer, now, Tag::kFree, live.back());
      live.pop_back();
    }
  }
  return raw;
}

// Checks the properties that every reader of a trace relies on.
void expect_possible(const Read& read) {
  std::set<std::uint64_t> live;
  std::set<std::uint32_t> started;
  std::uint64_t made = 0;
  std::uint64_t time = 0;
  for (const Event& event : read.events) {
    ASSERT_GE(event.time, time);
    time = event.time;
    if (event.kind == Kind::kThreadStart) {
      ASSERT_TRUE(started.insert(event.thread).second);
      ASSERT_EQ(event.thread, started.size() - 1);
    }
    ASSERT_TRUE(started.contains(event.thread));
    if (is_allocation(event.kind)) {
      ASSERT_EQ(event.object, made++);
      live.insert(event.object);
    } else if (is_free(event.kind)) {
      ASSERT_EQ(live.erase(event.object), 1U);
    } else if (event.kind == Kind::kRealloc || event.kind == Kind::kUsableSize ||
               event.kind == Kind::kTouched) {
      ASSERT_TRUE(live.contains(event.object));
    } else if (event.kind == Kind::kPhase) {
      ASSERT_LT(event.value, read.header.phases.size());
    }
  }
}

// Ticks of threads that the sample has nothing of: ended threads like them stand for them.
TEST(RawReader, UnseenTicksGoToEndedThreads) {
  RawBuilder raw;
  raw.header().sample = 4;
  raw.header().ended_ticks[0] = 10;
  raw.header().ended_ticks[1] = 1000;  // of threads in the file
  raw.event(0, 50, Tag::kMalloc, 0x9000, 10);
  for (std::uint32_t thread = 1; thread <= 3; ++thread) {
    const std::uint64_t made = thread == 3 ? 20 : 5;
    raw.event(thread, 100 * thread, Tag::kMalloc, 0x1000 * thread, 10);
    raw.other(thread, 100 * thread + 10, Other::kTicks, 2 * made);
    raw.other(thread, 100 * thread + 10, Other::kThreadEnd, thread);
  }
  // Of threads with 5 ticks a sample of 1 in 4 has 76%, of those with 20 it has 99.7%. So the first two stand for
  // 1.56 ticks more each, and the third for 0.06; scaled to 10 these are 4.90, 4.90 and 0.20.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> ticks;
  const Read read = read_built(raw);
  for (const Event& event : read.events) {
    if (event.kind == Kind::kTicks) {
      ticks.emplace_back(event.thread, event.value);
    }
  }
  EXPECT_EQ(ticks,
            (std::vector<std::pair<std::uint32_t, std::uint64_t>>{{1, 5}, {1, 5}, {2, 5}, {2, 5}, {3, 20}}));
}

// If no thread that can stand for others has ended, the ticks are of the end of the trace.
TEST(RawReader, UnseenTicksOfNoThreadAreOfANewOneIfTheFirstHasEnded) {
  RawBuilder raw;
  raw.header().sample = 4;
  raw.header().ended_ticks[0] = 10;
  raw.event(0, 50, Tag::kMalloc, 0x9000, 10);
  raw.other(0, 60, Other::kThreadEnd, 0);
  const Read read = read_built(raw);
  ASSERT_GE(read.events.size(), 2U);
  const Event& start = read.events[read.events.size() - 2];
  const Event& ticks = read.events.back();
  EXPECT_EQ(start.kind, Kind::kThreadStart);
  EXPECT_EQ(ticks.kind, Kind::kTicks);
  EXPECT_EQ(start.thread, 1U);
  EXPECT_EQ(ticks.thread, 1U);
  EXPECT_EQ(ticks.value, 10U);
}

// The ticks of an older thread in the window are not known up to its first allocation there, which
// stands for as many as its weight. A free says nothing.
TEST(RawReader, AnOlderThreadBeginsToCountAtAnAllocation) {
  RawBuilder raw;
  raw.header().sample = 64;
  raw.header().windowed = 1;
  raw.header().window_begin_ns = 1;
  const auto ticks = [&raw](std::uint64_t when, std::uint64_t value, bool older) {
    raw.other(0, when, Other::kTicks, 2 * value + (older ? 1 : 0));
  };
  ticks(10, 5000, true);
  raw.event(0, 10, Tag::kFree, 0x1000);
  ticks(20, 5500, true);
  raw.event(0, 20, Tag::kMalloc, 0x2000, 10);
  ticks(30, 5530, true);
  raw.event(0, 30, Tag::kFree, 0x2000);
  std::vector<std::uint64_t> values;
  for (const Event& event : read_built(raw).events) {
    if (event.kind == Kind::kTicks) {
      values.push_back(event.value);
    }
  }
  EXPECT_EQ(values, (std::vector<std::uint64_t>{63, 30}));
}

TEST(RawReader, ABlockBehindAHoleIsRead) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  raw.event(1, 200, Tag::kMalloc, 0x2000, 20);
  const TemporaryFile file(raw.bytes());
  const int opened = open(file.path().c_str(), O_RDWR | O_CLOEXEC);
  std::vector<std::uint8_t> block(kBlockBytes);
  constexpr std::uint64_t kFar = std::uint64_t{1} << 40;  // without a search for data, this takes minutes
  ASSERT_EQ(pread(opened, block.data(), kBlockBytes, 2 * kBlockBytes), static_cast<ssize_t>(kBlockBytes));
  ASSERT_EQ(pwrite(opened, block.data(), kBlockBytes, kFar), static_cast<ssize_t>(kBlockBytes));
  std::fill(block.begin(), block.end(), std::uint8_t{0});
  ASSERT_EQ(pwrite(opened, block.data(), kBlockBytes, 2 * kBlockBytes), static_cast<ssize_t>(kBlockBytes));
  close(opened);
  const Read read = read_file(file.path());
  EXPECT_EQ(steps(read), (std::vector<Step>{{Kind::kMalloc, 0, 0}, {Kind::kMalloc, 1, 1}}));
  EXPECT_EQ(read.loss.bytes, 0U);
}

TEST(RawReader, AWholeRecordingLosesNothing) {
  const Read read = read_built(random_recording(1));
  ASSERT_NO_FATAL_FAILURE(expect_possible(read));
  EXPECT_EQ(read.loss.events, 0U);
  EXPECT_EQ(read.loss.bytes, 0U);
  EXPECT_GT(read.events.size(), 55'000U);
}

TEST(RawReader, ABlockThatIsMissingIsSaid) {
  std::vector<std::uint8_t> bytes = random_recording(2).bytes();
  ASSERT_GT(bytes.size(), 5 * kBlockBytes);
  std::fill(bytes.begin() + 2 * kBlockBytes, bytes.begin() + 3 * kBlockBytes, std::uint8_t{0});
  const Read read = read_bytes(bytes);
  ASSERT_NO_FATAL_FAILURE(expect_possible(read));
  EXPECT_TRUE(read.loss.cut_short);
  EXPECT_FALSE(read.loss.why.empty());
}

// Only a recording with a window has ranks by birth; a damaged one may have them anywhere.
TEST(RawReader, ABirthWithoutAWindowDoesNotHoldAnEventBack) {
  RawBuilder raw;
  raw.other(0, 10, Other::kBorn, 3);
  raw.event(0, 10, Tag::kMalloc, 0x1000, 10);
  const Read read = read_built(raw);
  ASSERT_EQ(read.events.size(), 2U);
  EXPECT_EQ(read.events[1].kind, Kind::kMalloc);
}

TEST(RawReader, AnyBytesGiveAPossibleTrace) {
  const std::vector<std::uint8_t> good = random_recording(3).bytes();
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<std::uint8_t> bytes = good;
    // Change some bytes anywhere and some in the headers of blocks, and cut off a part of the end.
    for (std::uint64_t i = random() % 200; i-- > 0;) {
      bytes[1000 + random() % (bytes.size() - 1000)] = static_cast<std::uint8_t>(random());
    }
    if (seed % 2 == 0) {
      bytes[kBlockBytes * (1 + random() % 5) + random() % 32] = static_cast<std::uint8_t>(random());
    }
    if (seed % 3 == 0) {
      bytes.resize(bytes.size() - random() % (bytes.size() - kBlockBytes));
    }
    ASSERT_NO_FATAL_FAILURE(expect_possible(read_bytes(bytes)));
  }
}

TEST(RawReader, AnyHeaderIsReadOrRefusedWithOneLine) {
  RawBuilder raw;
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  const std::vector<std::uint8_t> good = raw.bytes();
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::uint8_t> bytes = good;
    for (int i = 0; i < 8; ++i) {
      bytes[random() % (seed % 2 == 0 ? 160 : sizeof(raw::FileHeader))] = static_cast<std::uint8_t>(random());
    }
    if (seed % 5 == 0) {
      bytes.resize(random() % bytes.size());
    }
    const TemporaryFile file(bytes);
    std::string error;
    const std::unique_ptr<EventSource> source = open_raw(file.path(), error);
    Event event;
    while (source != nullptr && source->next(event)) {
    }
    EXPECT_EQ(source == nullptr, !error.empty());
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace heapwright::trace
