// Tests the reader with processes that could not record their end: the time of the end, the loss,
// and the touched part of large blocks.
#include <gtest/gtest.h>

#include <utility>

#include "read_built.h"

namespace heapwright::trace {
namespace {

using raw::Ending;
using raw::Other;
using raw::Tag;
using recorder::RawBuilder;

// The last thread has ended, so the event of the end is one of thread 0.
TEST(KilledProcess, ItsEndIsTheLastEventIfItIsKnown) {
  for (const auto& [ending, end_ns] : {std::pair{Ending::kRunning, 10'000U},
                                       {Ending::kReplaced, 10'000U},
                                       {Ending::kRunning, 0U},
                                       {Ending::kExited, 10'000U},
                                       {Ending::kStopped, 10'000U}}) {
    const bool known = end_ns != 0 && (ending == Ending::kRunning || ending == Ending::kReplaced);
    RawBuilder raw;
    raw.header().first_ns = 1000;
    raw.header().ending.store(ending);
    raw.header().end_ns.store(end_ns);
    raw.event(0, 10, Tag::kMalloc, 0x1000, 100'000);
    raw.event(1, 20, Tag::kMalloc, 0x2000, 100);
    raw.other(1, 30, Other::kThreadEnd, 1);
    const Read read = read_built(raw);
    EXPECT_EQ(read.header.ends, known);
    EXPECT_EQ(read.events.back().time, known ? 9000U : 240U);
    EXPECT_EQ(read.events.back().thread, known ? 0U : 1U);
    EXPECT_EQ(read.events.back() == (Event{.kind = Kind::kEnd, .time = 9000}), known);
  }
}

TEST(KilledProcess, ItsTraceIsCutShort) {
  RawBuilder raw;
  raw.header().ending.store(Ending::kRunning);
  raw.event(0, 100, Tag::kMalloc, 0x1000, 10);
  EXPECT_TRUE(read_built(raw).loss.cut_short);
  raw.header().ending.store(Ending::kReplaced);
  EXPECT_FALSE(read_built(raw).loss.cut_short);
}

// Writes untouched and resident bytes, as the recorder does when it reads them.
void put_readings(RawBuilder& raw, std::uint64_t when, std::uint64_t untouched, std::uint64_t resident) {
  if (untouched != 0) {
    raw.other(0, when, Other::kUntouched, untouched);
  }
  raw.other(0, when, Other::kResident, resident);
}

std::vector<Event> touched_blocks(const RawBuilder& raw) {
  std::vector<Event> touched = read_built(raw).events;
  std::erase_if(touched, [](const Event& event) { return event.kind != Kind::kTouched; });
  return touched;
}

TEST(KilledProcess, LargeBlocksAreTouchedAsTheReadingsSay) {
  constexpr std::uint64_t kMiB = 1 << 20;
  RawBuilder raw;
  raw.header().ending.store(Ending::kRunning);
  raw.event(0, 10, Tag::kMalloc, 0x10000000, 60 * kMiB);
  raw.event(0, 20, Tag::kMalloc, 0x20000000, 20 * kMiB);
  raw.event(0, 30, Tag::kMalloc, 0x30000000, 40 * kMiB);
  put_readings(raw, 40, 100 * kMiB, 50 * kMiB);
  // 40 MiB of the untouched bytes are freed; 60 of 80 MiB remain.
  raw.other(0, 50, Other::kTouched, 0);
  raw.event(0, 50, Tag::kFree, 0x30000000);
  raw.event(0, 60, Tag::kMalloc, 0x40000000, 100 * kMiB);
  put_readings(raw, 70, 0, 60 * kMiB);
  raw.event(0, 80, Tag::kMalloc, 0x50000000, 100 * kMiB);  // nothing is known of it
  raw.event(0, 90, Tag::kMalloc, 0x60000000, 1000);
  const std::vector<Event> touched = touched_blocks(raw);
  ASSERT_EQ(touched.size(), 3U);
  EXPECT_EQ(touched[0].object, 0U);
  EXPECT_EQ(touched[0].touched, 15 * kMiB);
  EXPECT_EQ(touched[1].object, 1U);
  EXPECT_EQ(touched[1].touched, 5 * kMiB);
  EXPECT_EQ(touched[2].object, 3U);
  EXPECT_EQ(touched[2].touched, 10 * kMiB);
  raw.header().ending.store(Ending::kExited);  // a process that exits records them itself
  EXPECT_TRUE(touched_blocks(raw).empty());
}

TEST(KilledProcess, WithoutReadingsNothingIsKnownOfLargeBlocks) {
  RawBuilder raw;
  raw.header().ending.store(Ending::kRunning);
  raw.event(0, 10, Tag::kMalloc, 0x10000000, 1 << 20);
  put_readings(raw, 20, 0, 1 << 20);
  EXPECT_TRUE(touched_blocks(raw).empty());
}

}  // namespace
}  // namespace heapwright::trace
