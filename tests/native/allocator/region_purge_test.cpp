// Tests the region's purging, with a clock of the test's own, by asking the kernel which pages are
// resident.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "core/region.h"
#include "support.h"

namespace heapwright::alloc {
namespace {

constexpr std::size_t kKeep = 16;  // superblocks
constexpr std::size_t kShare = 4;  // of those in use, at most so manieth part is kept

class RegionPurgeTest : public testing::Test {
 protected:
  RegionPurgeTest() {
    test::now_ms = 1'000'000;
    region.settings.clock = test::test_clock;
    region.settings.huge_pages = platform::HugePageMode::kNever;
    region.settings.keep_bytes = kKeep * kSuperblockBytes;
    region.give(region.take(1), 1);
    region.purge_all();
    before = region.statistics();
  }
  ~RegionPurgeTest() override { test::abandon(region); }

  // So many superblocks, written all over.
  std::vector<Superblock*> take(std::size_t count) {
    std::vector<Superblock*> taken;
    for (std::size_t i = 0; i < count; ++i) {
      taken.push_back(region.take(1));
      taken.back()->kind = Kind::kSpan;
      std::memset(memory_of(taken.back()), 1, kSuperblockBytes);
    }
    return taken;
  }
  void give(const std::vector<Superblock*>& taken) {
    for (Superblock* const one : taken) {
      region.give(one, 1);
    }
  }
  [[nodiscard]] std::size_t dirty() const { return region.statistics().dirty_bytes / kSuperblockBytes; }
  [[nodiscard]] std::size_t used() const { return region.statistics().used_bytes / kSuperblockBytes; }
  [[nodiscard]] std::size_t in_memory(const std::vector<Superblock*>& those) const {
    std::size_t bytes = 0;
    for (const Superblock* const one : those) {
      bytes += test::resident(memory_of(one), kSuperblockBytes).value_or(0);
    }
    return bytes;
  }
  [[nodiscard]] std::size_t purges() const { return region.statistics().purges - before.purges; }
  [[nodiscard]] std::size_t purged_bytes() const {
    return region.statistics().purged_bytes - before.purged_bytes;
  }
  Region region;
  Region::Statistics before{};
};

// The fast paths of freed spans change memory as the others would, or nothing.
TEST_F(RegionPurgeTest, FreedSpansMoveQuicklyWhileNothingIsPurgedAndThePeakStays) {
  auto taken = take(2 * kKeep);
  for (Superblock* const one : taken) {
    one->length = 1;
  }
  EXPECT_FALSE(region.give_span_quickly(taken[0])) << "nothing is known yet";
  EXPECT_EQ(taken[0]->kind, Kind::kSpan);
  region.give_span(taken[0]);
  for (std::size_t i = 1; i < kKeep; ++i) {
    EXPECT_TRUE(region.give_span_quickly(taken[i])) << i;
  }
  EXPECT_EQ(dirty(), kKeep);
  EXPECT_EQ(used(), kKeep);
  EXPECT_FALSE(region.give_span_quickly(taken[kKeep])) << "the region purges now";
  for (std::size_t i = 0; i < kKeep; ++i) {
    EXPECT_EQ(region.take_span_quickly(1), taken[kKeep - 1 - i]) << i;
  }
  EXPECT_EQ(region.take_span_quickly(1), nullptr);
  EXPECT_EQ(dirty(), 0U);
  EXPECT_EQ(used(), 2 * kKeep);
  region.give_span(taken[0]);
  Superblock* const more = region.take(2);
  EXPECT_FALSE(region.give_span_quickly(taken[1])) << "memory in use has changed";
  region.give(more, 2);
}

TEST_F(RegionPurgeTest, WhilePurgingIsThrottledEachEighthFreedSpanReadsTheClock) {
  std::vector<Superblock*> taken;
  for (int round = 0; round < 2; ++round) {  // the first round's purges are premature
    taken = take(4 * kKeep);
    for (Superblock* const one : taken) {
      one->length = 1;
      region.give_span(one);
    }
  }
  EXPECT_EQ(dirty(), 4 * kKeep);
  for (Superblock*& one : taken) {
    one = region.take_span(1);
    one->kind = Kind::kSpan;
  }
  for (std::size_t i = 0; i < 2 * kKeep; ++i) {
    region.give_span(taken[i]);
  }
  test::now_ms += 1'000'000;  // the premature purges are paid for
  std::size_t quick = 0;
  while (region.give_span_quickly(taken[2 * kKeep + quick])) {
    ++quick;
  }
  EXPECT_EQ(quick, 7U);
  region.give_span(taken[2 * kKeep + quick]);
  EXPECT_LE(dirty(), kKeep);
}

TEST_F(RegionPurgeTest, ATakenSpanRaisesThePeakOfMemoryInUse) {
  auto taken = take(4);
  for (Superblock* const one : taken) {
    one->length = 1;
  }
  region.give_span(taken[0]);
  region.give_span(taken[1]);
  region.large.allocate(2 * kSuperblockBytes, 1);
  region.purge_above_peak();
  EXPECT_EQ(region.take_span_quickly(1), nullptr) << "with the large block there are four superblocks in use";
  region.give_span(region.take_span(1));
  EXPECT_NE(region.take_span_quickly(1), nullptr);
  EXPECT_EQ(region.take_span_quickly(1), nullptr);
}

TEST_F(RegionPurgeTest, NothingIsKeptBeyondTheRuleWithoutAClock) {
  const auto taken = take(1000);
  EXPECT_EQ(in_memory(taken), 1000 * kSuperblockBytes);
  for (Superblock* const one : taken) {
    region.give(one, 1);
    ASSERT_LE(dirty(), std::max(kKeep, used() / kShare));
  }
  EXPECT_EQ(used(), 0U);
  // The statistics agree with the kernel.
  EXPECT_EQ(in_memory(taken), region.statistics().dirty_bytes);
  EXPECT_EQ(purged_bytes(), 1000 * kSuperblockBytes - region.statistics().dirty_bytes);
}

TEST_F(RegionPurgeTest, NothingIsGivenBackWithinTheRule) {
  const auto taken = take(kKeep);
  give(taken);
  EXPECT_EQ(dirty(), kKeep);
  EXPECT_EQ(purges(), 0U);
  EXPECT_EQ(in_memory(taken), kKeep * kSuperblockBytes);
}

TEST_F(RegionPurgeTest, TheOldestGoFirstAndTheNewestIsUsedFirst) {
  const auto taken = take(2 * (kKeep + 1));
  std::vector<Superblock*> every_other;  // no neighbours, which would go along
  for (std::size_t i = 0; i < taken.size(); i += 2) {
    every_other.push_back(taken[i]);
  }
  give(every_other);
  ASSERT_EQ(dirty(), kKeep / 2);
  const auto half = every_other.begin() + (kKeep / 2 + 1);
  EXPECT_EQ(in_memory({every_other.begin(), half}), 0U);
  EXPECT_EQ(in_memory({half, every_other.end()}), kKeep / 2 * kSuperblockBytes);
  EXPECT_EQ(region.take(1), every_other.back());
}

TEST_F(RegionPurgeTest, FreedSpansCountAndTheOldestGoFirst) {
  const auto taken = take(2 * (kKeep + 1));
  std::vector<Superblock*> every_other;  // no neighbours, which would go along
  for (std::size_t i = 0; i < taken.size(); i += 2) {
    taken[i]->length = 1;
    region.give_span(taken[i]);
    every_other.push_back(taken[i]);
  }
  ASSERT_EQ(dirty(), kKeep / 2);
  const auto half = every_other.begin() + (kKeep / 2 + 1);
  EXPECT_EQ(in_memory({every_other.begin(), half}), 0U);
  EXPECT_EQ(in_memory({half, every_other.end()}), kKeep / 2 * kSuperblockBytes);
  EXPECT_TRUE(region.purge_all());
  EXPECT_EQ(in_memory(every_other), 0U);
  EXPECT_EQ(region.take_span(1), nullptr);
}

TEST_F(RegionPurgeTest, NeighboursGoInOneCall) {
  Superblock* const run = region.take(60);
  std::memset(memory_of(run), 1, 60 * kSuperblockBytes);
  region.give(run, 60);
  EXPECT_EQ(purges(), 1U);
  EXPECT_EQ(purged_bytes(), 60 * kSuperblockBytes);
  EXPECT_EQ(test::resident(memory_of(run), 60 * kSuperblockBytes), 0U);
}

TEST_F(RegionPurgeTest, OfALargeHeapMoreIsKept) {
  const auto taken = take(800);
  const std::size_t some = region.allowance() / 2;
  ASSERT_GT(some, 2 * kKeep);
  give({taken.end() - static_cast<std::ptrdiff_t>(some), taken.end()});
  EXPECT_EQ(dirty(), some);
  EXPECT_EQ(purges(), 0U);
}

TEST_F(RegionPurgeTest, MemoryNeededAgainAtOnceIsKept) {
  give(take(100));
  ASSERT_LE(dirty(), kKeep);
  test::now_ms += 10;
  const auto again = take(100);
  give(again);
  EXPECT_EQ(dirty(), 100U) << "more was purged prematurely than 10 ms of run time pay for";
  EXPECT_EQ(in_memory(again), 100 * kSuperblockBytes);
}

// Memory kept for one kind of use is not kept beside as much memory of another kind.
TEST_F(RegionPurgeTest, KeptMemoryMakesWay) {
  give(take(100));
  give(take(100));
  ASSERT_EQ(dirty(), 100U) << "the first purge was premature";
  region.large.allocate(kKeep * kSuperblockBytes, 1);
  region.purge_above_peak();
  EXPECT_EQ(dirty(), 100U) << "as many as were in use, and what may be kept";
  region.large.allocate((80 - kKeep) * kSuperblockBytes, 1);
  region.purge_above_peak();
  EXPECT_LE(dirty(), 20 + region.allowance());
}

// Spans find no place among single superblocks that are free: they are new memory as well.
TEST_F(RegionPurgeTest, ScatteredFreeMemoryMakesWay) {
  const auto taken = take(400);
  std::vector<Superblock*> every_other;
  std::vector<Superblock*> others;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    (i % 2 == 0 ? every_other : others).push_back(taken[i]);
  }
  give(every_other);
  for (const Superblock* const one : take(200)) {
    ASSERT_NE(one, nullptr);  // now the purge was premature
  }
  give(every_other);
  ASSERT_EQ(dirty(), 200U);
  for (std::size_t in_use = 200; in_use < 600; in_use += 2) {
    Superblock* const span = region.take(2);
    ASSERT_NE(span, nullptr);
    span->kind = Kind::kSpan;
    ASSERT_LE(used() + dirty(), std::max<std::size_t>(400 + 400 / 4, used() + region.allowance()));
  }
  EXPECT_LT(dirty(), 200U);
}

// Free memory between spans of changing lengths is in pieces, so it cannot all be used.
TEST_F(RegionPurgeTest, ReplacedSpansThatNeedPurgedMemoryKeepMore) {
  std::mt19937 random(1);
  std::array<Superblock*, 64> spans{};
  std::size_t peak = 0;
  std::size_t purged = 0;
  for (int i = 0; i < 20'000; ++i) {
    purged = i == 10'000 ? region.statistics().purged_bytes : purged;
    Superblock*& span = spans.at(random() % spans.size());
    if (span != nullptr) {
      region.give(span, span->length);
    }
    const std::size_t length = 1 + random() % 16;
    span = region.take(length);
    ASSERT_NE(span, nullptr);
    join(span, length, length * kSuperblockBytes);
    peak = std::max(peak, used());
    ASSERT_LE(used() + dirty(), peak + std::max(peak / 4, kKeep));
  }
  EXPECT_LT(region.statistics().purged_bytes - purged, 100 * kSuperblockBytes);
}

TEST_F(RegionPurgeTest, RunTimePaysForPrematurePurges) {
  constexpr std::size_t kTwoChunks =
      2 * (kSuperblocksInChunk - 1);  // so that no other memory is used instead
  give(take(kTwoChunks));
  const std::size_t premature = kTwoChunks - dirty();
  give(take(kTwoChunks));
  ASSERT_EQ(dirty(), kTwoChunks);
  test::now_ms += premature * PrematurePurges::kMsPerSuperblock - 1;
  give(take(kTwoChunks));
  EXPECT_EQ(dirty(), kTwoChunks);
  test::now_ms += 1;
  give(take(kTwoChunks));
  EXPECT_LE(dirty(), kKeep);
}

// However often memory use goes up and down, no more is purged prematurely than the run time pays
// for, plus one fall.
TEST_F(RegionPurgeTest, UpAndDownCostsNoMoreThanWasEarned) {
  const std::uint64_t began = test::now_ms;
  for (int i = 0; i < 200; ++i) {
    give(take(100));
    test::now_ms += 3 * PrematurePurges::kMsPerSuperblock;
    ASSERT_LE(purged_bytes() / kSuperblockBytes,
              (test::now_ms - began) / PrematurePurges::kMsPerSuperblock + 200);
  }
  EXPECT_GT(purged_bytes() / kSuperblockBytes, (test::now_ms - began) / PrematurePurges::kMsPerSuperblock / 2)
      << "and it continues to purge";
}

TEST_F(RegionPurgeTest, MemoryNeededAgainLaterIsNoPrematurePurge) {
  for (int i = 0; i < 3; ++i) {
    give(take(100));
    EXPECT_LE(dirty(), kKeep);
    test::now_ms += region.settings.delay_ms;
  }
}

// Further purges do not make older ones recent.
TEST_F(RegionPurgeTest, OnlyRecentPurgesArePremature) {
  give(take(1000));
  for (int i = 0; i < 20; ++i) {
    test::now_ms += region.settings.delay_ms / 4;
    region.count_purged(1);
  }
  give(take(1000));
  EXPECT_LE(dirty(), kKeep) << "nothing was premature";
}

// A process that has run for a day may not purge prematurely for hours.
TEST_F(RegionPurgeTest, RunTimeIsSavedUpForAWhileOnly) {
  constexpr std::size_t kOnce = 2 * (kSuperblocksInChunk - 1);
  test::now_ms += 86'400'000;
  while (dirty() < kOnce) {
    ASSERT_LE(purged_bytes() / kSuperblockBytes,
              PrematurePurges::kMaxSavedMs / PrematurePurges::kMsPerSuperblock + 2 * kOnce);
    give(take(kOnce));
  }
}

// Freed large blocks and free superblocks share one allowance.
TEST_F(RegionPurgeTest, ALargeBlockThatIsFreedTakesFreeSuperblocksAlong) {
  void* const large = region.large.allocate(1000 * kSuperblockBytes, 1);
  region.purge_above_peak();
  give(take(100));
  ASSERT_GT(dirty(), 2 * kKeep);
  region.large.free(large);
  region.purge_above_allowance();
  EXPECT_LE(dirty(), kKeep);
  EXPECT_EQ(region.large.kept_bytes(), 0U) << "of the two kinds it was the larger";
}

TEST_F(RegionPurgeTest, SuperblocksThatAreFreedTakeFreedLargeBlocksAlong) {
  const auto taken = take(1000);
  region.large.free(region.large.allocate(100 * kSuperblockBytes, 1));
  region.purge_above_allowance();
  ASSERT_EQ(region.large.kept_bytes(), 100 * kSuperblockBytes);
  give(taken);
  EXPECT_EQ(region.large.kept_bytes(), 0U);
}

TEST_F(RegionPurgeTest, TheDelayIsASetting) {
  region.settings.delay_ms = 50;
  give(take(100));
  test::now_ms += 50;
  give(take(100));
  EXPECT_LE(dirty(), kKeep);
  test::now_ms += 20;
  give(take(100));
  EXPECT_EQ(dirty(), 100U);
}

TEST_F(RegionPurgeTest, NoDelayNeverKeepsMore) {
  region.settings.delay_ms = 0;
  for (int i = 0; i < 5; ++i) {
    give(take(100));
    EXPECT_LE(dirty(), kKeep);
  }
}

TEST_F(RegionPurgeTest, ATrimPurgesEverythingWhateverWasPremature) {
  give(take(100));
  const auto taken = take(100);
  give(taken);
  ASSERT_EQ(dirty(), 100U);
  EXPECT_TRUE(region.purge_all());
  EXPECT_EQ(dirty(), 0U);
  EXPECT_EQ(in_memory(taken), 0U);
  EXPECT_FALSE(region.purge_all());
}

TEST_F(RegionPurgeTest, KeepIsASetting) {
  for (const std::size_t keep : {std::size_t{0}, std::size_t{4}, std::size_t{64}}) {
    region.purge_all();
    test::now_ms += 10'000;
    region.settings.keep_bytes = keep * kSuperblockBytes;
    for (Superblock* const one : take(200)) {
      region.give(one, 1);
      ASSERT_LE(dirty(), std::max(keep, used() / kShare));
    }
  }
}

TEST_F(RegionPurgeTest, MemoryGivenBackReadsAsZero) {
  const auto taken = take(100);
  give(taken);
  region.purge_all();
  for (int i = 0; i < 100; ++i) {
    Superblock* const one = region.take(1);
    ASSERT_TRUE(region.last_was_clean());
    const char* const memory = memory_of(one);
    ASSERT_TRUE(std::all_of(memory, memory + kSuperblockBytes, [](char c) { return c == 0; }));
  }
}

}  // namespace
}  // namespace heapwright::alloc
