// Tests the region: superblocks lie where they should, and none is handed out twice.
#include "core/region.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "support.h"

namespace heapwright::alloc {
namespace {

constexpr std::size_t kMax = kSuperblocksInChunk - 1;

// Growing in place, and in a reservation.
class RegionTest : public testing::TestWithParam<bool> {
 protected:
  RegionTest() {
    region.settings.reservation = GetParam();
    region.settings.huge_pages = platform::HugePageMode::kNever;
    region.settings.clock = test::test_clock;
  }
  ~RegionTest() override { test::abandon(region); }
  Superblock* take(std::size_t count) {
    Superblock* const first = region.take(count);
    for (std::size_t i = 0; first != nullptr && i < count; ++i) {
      first[i].kind = i == 0 ? Kind::kSpan : Kind::kSpanTail;
    }
    return first;
  }
  Superblock* take_span(std::size_t count) {
    Superblock* const first = take(count);
    first->length = static_cast<std::uint32_t>(count);
    return first;
  }
  Region region;
};
INSTANTIATE_TEST_SUITE_P(Place, RegionTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "Reservation" : "InPlace"; });

TEST_P(RegionTest, HasNothingUntilSomethingIsTaken) {
  EXPECT_EQ(region.base(), 0U);
  EXPECT_EQ(region.bytes(), 0U);
  int here = 0;
  EXPECT_FALSE(region.contains(&here));
  EXPECT_FALSE(region.contains(nullptr));
  EXPECT_EQ(region.next_used(nullptr), nullptr);
  EXPECT_FALSE(region.purge_all());
}

TEST_P(RegionTest, ASuperblockIsUsableMemoryInTheRegion) {
  Superblock* const one = take(1);
  ASSERT_NE(one, nullptr);
  EXPECT_TRUE(region.last_was_clean());
  char* const memory = memory_of(one);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % kSuperblockBytes, 0U);
  EXPECT_EQ(superblock_of(memory + kSuperblockBytes - 1), one);
  EXPECT_TRUE(region.contains(memory));
  EXPECT_TRUE(std::all_of(memory, memory + kSuperblockBytes, [](char c) { return c == 0; }));
  std::memset(memory, 1, kSuperblockBytes);
  region.give(one, 1);
  EXPECT_EQ(take(1), one);
  EXPECT_FALSE(region.last_was_clean());
}

TEST_P(RegionTest, AClassGetsTheMemoryItHadBefore) {
  std::vector<Superblock*> taken;
  for (std::uint8_t number = 1; number <= 20; ++number) {
    taken.push_back(region.take(1, number));
    taken.back()->size_class = number;
    taken.back()->kind = Kind::kBlocks;
  }
  for (Superblock* const one : taken) {
    region.give(one, 1);
  }
  for (const std::uint8_t number : {std::uint8_t{7}, std::uint8_t{20}, std::uint8_t{1}, std::uint8_t{13}}) {
    EXPECT_EQ(region.take(1, number), taken[number - 1U]);
  }
  EXPECT_EQ(region.take(1, 99), taken[18]) << "of the others, the latest";
}

TEST_P(RegionTest, NeverGivesTwiceAndNeverTheDescriptions) {
  std::set<Superblock*> seen;
  for (std::size_t i = 0; i < 10 * kMax; ++i) {
    Superblock* const one = take(1);
    ASSERT_NE(index_in_chunk(one), 0U);
    ASSERT_TRUE(seen.insert(one).second);
  }
  EXPECT_EQ(region.bytes(), 10 * kChunkBytes);
  EXPECT_EQ(region.statistics().used_bytes, 10 * kMax * kSuperblockBytes);
  // In address order, all of them, by next_used().
  auto expected = seen.begin();
  for (Superblock* s = region.next_used(nullptr); s != nullptr; s = region.next_used(s), ++expected) {
    ASSERT_EQ(s, *expected);
  }
  EXPECT_EQ(expected, seen.end());
}

TEST_P(RegionTest, RunsOfEveryLengthLieTogetherInOneChunk) {
  for (std::size_t count = 1; count <= kMax; ++count) {
    Superblock* const first = take(count);
    ASSERT_NE(first, nullptr);
    ASSERT_LE(index_in_chunk(first) + count, kSuperblocksInChunk);
    std::memset(memory_of(first), 1, count * kSuperblockBytes > 4096 ? 4096 : 1);
    memory_of(first)[count * kSuperblockBytes - 1] = 1;
  }
}

TEST_P(RegionTest, ARunIsFoundInTheGapItFits) {
  std::vector<Superblock*> all;
  for (std::size_t i = 0; i < kMax; ++i) {
    all.push_back(take(1));
  }
  std::sort(all.begin(), all.end());
  region.give(all[3], 1);
  region.give(all[10], 5);
  region.give(all[20], 4);
  EXPECT_EQ(take(5), all[10]);
  EXPECT_EQ(take(4), all[20]);
  EXPECT_EQ(take(1), all[3]);
  EXPECT_EQ(region.bytes(), kChunkBytes);
}

TEST_P(RegionTest, ASpanFindsRoomInAnyOfManyChunks) {
  constexpr std::size_t kChunks = 40;
  constexpr std::size_t kSpan = 3;
  std::vector<Superblock*> spans;
  for (std::size_t i = 0; i < kChunks * kMax / kSpan; ++i) {
    spans.push_back(take(kSpan));
  }
  const std::size_t bytes = region.bytes();
  region.give(spans[1], kSpan);                            // the only room for a span
  for (std::size_t chunk = 1; chunk < kChunks; ++chunk) {  // the others have gaps that are too short
    Superblock* const span = spans[chunk * kMax / kSpan];
    span[1].kind = Kind::kSpan;
    region.give(span, 1);
  }
  EXPECT_EQ(take(kSpan), spans[1]);
  EXPECT_EQ(region.bytes(), bytes);
}

TEST(OpenChunks, TheLongestRunOfBits) {
  std::mt19937_64 random{7};
  for (int round = 0; round < 20'000; ++round) {
    std::uint64_t bits = random();
    bits &= round % 3 == 0 ? random() : ~std::uint64_t{0};
    bits |= round % 3 == 1 ? random() | random() : 0;
    bits &= OpenChunks::kAllFree;
    std::size_t longest = 0;
    for (std::size_t i = 0, length = 0; i < 64; ++i) {
      length = (bits >> i & 1U) != 0 ? length + 1 : 0;
      longest = std::max(longest, length);
    }
    ASSERT_EQ(longest_run(bits), longest) << bits;
  }
  EXPECT_EQ(longest_run(0), 0U);
  EXPECT_EQ(longest_run(OpenChunks::kAllFree), 63U);
}

TEST_P(RegionTest, GrowsInPlaceOnlyIntoWhatIsFree) {
  Superblock* const first = take(4);
  Superblock* const next = take(2);
  ASSERT_EQ(next, first + 4);
  EXPECT_FALSE(region.grow(first, 4, 5));
  region.give(next, 2);
  EXPECT_TRUE(region.grow(first, 4, 6));
  EXPECT_EQ(region.statistics().used_bytes, 6 * kSuperblockBytes);
  EXPECT_TRUE(region.grow(first, 6, kMax));
  EXPECT_FALSE(region.grow(first, kMax, kMax + 1)) << "beyond its chunk";
  region.give(first, kMax);
  EXPECT_EQ(region.statistics().used_bytes, 0U);
}

TEST_P(RegionTest, AFreedSpanStaysWholeForTheNextOfItsLength) {
  Superblock* const first = take_span(3);
  Superblock* const second = take_span(3);
  Superblock* const other = take_span(2);
  for (Superblock* const span : {first, second, other}) {
    region.give_span(span);
  }
  EXPECT_EQ(region.statistics().used_bytes, 0U);
  EXPECT_EQ(region.statistics().dirty_bytes, 8 * kSuperblockBytes);
  EXPECT_EQ(region.take_span(4), nullptr);
  EXPECT_EQ(region.take_span(3), second) << "the latest";
  EXPECT_FALSE(region.last_was_clean());
  EXPECT_EQ(region.take_span(3), first);
  EXPECT_EQ(region.take_span(3), nullptr);
  EXPECT_EQ(region.statistics().used_bytes, 6 * kSuperblockBytes);
  EXPECT_EQ(region.statistics().dirty_bytes, 2 * kSuperblockBytes);
}

TEST_P(RegionTest, FreedSpansServeAllElseBeforeNewMemory) {
  const auto fill_and_free = [&] {
    std::vector<Superblock*> spans;
    for (std::size_t i = 0; i < kMax / 3; ++i) {
      spans.push_back(take_span(3));
    }
    for (Superblock* const span : spans) {
      region.give_span(span);
    }
  };
  for (const std::size_t count : {std::size_t{1}, std::size_t{5}, kMax}) {
    fill_and_free();
    Superblock* const one = take(count);
    ASSERT_NE(one, nullptr);
    EXPECT_FALSE(region.last_was_clean());
    region.give(one, count);
  }
  fill_and_free();
  Superblock* const dirty = region.take_dirty(kMax);
  ASSERT_NE(dirty, nullptr);
  dirty->kind = Kind::kSpan;
  region.give(dirty, kMax);
  EXPECT_EQ(region.bytes(), kChunkBytes);
}

TEST_P(RegionTest, ASpanGrowsIntoAFreedOne) {
  Superblock* const first = take_span(4);
  Superblock* const next = take_span(2);
  ASSERT_EQ(next, first + 4);
  region.give_span(next);
  EXPECT_TRUE(region.holds_memory_behind(first, 4, 6));
  ASSERT_EQ(region.take_dirty(2), next);
  region.give_span(next);
  EXPECT_TRUE(region.grow(first, 4, 6));
  EXPECT_EQ(region.take_span(2), nullptr);
}

TEST_P(RegionTest, TagsKeepTheirValuesBeyondTheFirstGibibyte) {
  std::vector<Superblock*> taken;
  while (region.bytes() <= std::size_t{2304} << 20U) {
    Superblock* const first = take(kMax);
    ASSERT_NE(first, nullptr);
    for (std::size_t i = 0; i < kMax; ++i) {
      auto& tag = region.tag(memory_of(first + i));
      ASSERT_EQ(tag, 0U);
      tag = static_cast<std::uint32_t>(taken.size() * kMax + i + 1);
    }
    taken.push_back(first);
  }
  for (std::size_t n = 0; n < taken.size(); ++n) {
    for (std::size_t i = 0; i < kMax; ++i) {
      auto& tag = region.tag(memory_of(taken[n] + i) + kSuperblockBytes - 1);
      ASSERT_EQ(tag, n * kMax + i + 1);
      tag = 0;
    }
    region.give(taken[n], kMax);
  }
}

TEST_P(RegionTest, StopsAtItsLimitAndGoesOnAfterSomethingIsGiven) {
  region.settings.limit_bytes = 5 * kChunkBytes;
  std::vector<Superblock*> taken;
  for (Superblock* one = take(1); one != nullptr; one = take(1)) {
    taken.push_back(one);
    ASSERT_LE(region.bytes(), 5 * kChunkBytes);
  }
  EXPECT_EQ(taken.size(), 5 * kMax);
  EXPECT_EQ(take(2), nullptr);
  region.give(taken.back(), 1);
  EXPECT_EQ(take(1), taken.back());
}

TEST_P(RegionTest, LargeBlocksCountTowardsTheLimit) {
  region.settings.limit_bytes = 5 * kChunkBytes;
  ASSERT_NE(region.large.allocate(3 * kChunkBytes + 1, 1), nullptr);
  std::size_t count = 0;
  while (take(1) != nullptr) {
    ++count;
  }
  EXPECT_EQ(count, kMax);
}

TEST_P(RegionTest, ShrinksByFreeChunksAtItsEnd) {
  std::vector<Superblock*> taken;
  for (int i = 0; i < 20; ++i) {
    taken.push_back(take(kMax));
    std::memset(memory_of(taken.back()), 1, kMax * kSuperblockBytes);
  }
  char* const base = reinterpret_cast<char*>(region.base());
  for (std::size_t i = 20; i-- > 2;) {
    region.give(taken[i], kMax);
  }
  region.give(taken[0], kMax);  // not at the end
  region.shrink();
  EXPECT_EQ(region.bytes(), 2 * kChunkBytes);
  const auto left = test::resident(base + 2 * kChunkBytes, 18 * kChunkBytes);
  if (GetParam()) {
    ASSERT_TRUE(left.has_value()) << "a reservation is kept";
    EXPECT_EQ(*left, 0U);
  } else {
    EXPECT_FALSE(left.has_value()) << "the address space is still taken";
  }
  EXPECT_EQ(*test::resident(memory_of(taken[1]), kMax * kSuperblockBytes), kMax * kSuperblockBytes);
  // It grows again from its end, and the memory there reads as zero.
  std::set<Superblock*> seen{taken[1]};
  for (int i = 0; i < 19; ++i) {
    Superblock* const first = take(kMax);
    ASSERT_TRUE(seen.insert(first).second);
    ASSERT_TRUE(region.last_was_clean());
    ASSERT_EQ(memory_of(first)[0], 0);
    memory_of(first)[0] = 1;
  }
  EXPECT_EQ(region.bytes(), 20 * kChunkBytes);
}

// Random takes, gives and grows, compared with a set of the taken superblocks.
TEST_P(RegionTest, RandomOperationsKeepRunsApart) {
  std::mt19937 random(7);  // NOLINT: the same sequence every time
  struct Run {
    Superblock* first;
    std::size_t count;
    unsigned char fill;
  };
  std::vector<Run> runs;
  std::set<Superblock*> used;
  const auto claim = [&](Superblock* first, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(used.insert(first + i).second);
    }
  };
  const auto mark = [](const Run& run) {
    for (std::size_t i = 0; i < run.count; ++i) {
      memory_of(run.first)[i * kSuperblockBytes] = static_cast<char>(run.fill);
    }
  };
  for (int step = 0; step < 20'000 && !HasFatalFailure(); ++step) {
    test::now_ms += random() % 50;
    const std::size_t pick = runs.empty() ? 0 : random() % runs.size();
    const auto what = random() % 100;
    if (what < 48 || runs.empty()) {
      const std::size_t count = random() % 4 != 0 ? 1 : 1 + random() % kMax;
      const bool as_span = random() % 2 != 0 && count <= FreedSpans::kLongest;
      Superblock* const freed = as_span ? region.take_span(count) : nullptr;
      Run run{freed != nullptr ? freed : take(count), count, static_cast<unsigned char>(1 + random() % 255)};
      ASSERT_NE(run.first, nullptr);
      claim(run.first, count);
      mark(run);
      runs.push_back(run);
    } else if (what < 95) {
      const Run run = runs[pick];
      for (std::size_t i = 0; i < run.count; ++i) {
        ASSERT_EQ(static_cast<unsigned char>(memory_of(run.first)[i * kSuperblockBytes]), run.fill);
        used.erase(run.first + i);
      }
      if (random() % 2 != 0) {
        run.first->length = static_cast<std::uint32_t>(run.count);
        region.give_span(run.first);
      } else {
        region.give(run.first, run.count);
      }
      runs[pick] = runs.back();
      runs.pop_back();
    } else if (what < 99) {
      Run& run = runs[pick];
      const std::size_t wanted = run.count + 1 + random() % 3;
      if (wanted <= kMax && region.grow(run.first, run.count, wanted)) {
        claim(run.first + run.count, wanted - run.count);
        run.count = wanted;
        mark(run);
      }
    } else {
      region.purge_all();
      region.shrink();
    }
    ASSERT_EQ(region.statistics().used_bytes, used.size() * kSuperblockBytes);
  }
  for (const Run& run : runs) {
    region.give(run.first, run.count);
  }
}

}  // namespace
}  // namespace heapwright::alloc
