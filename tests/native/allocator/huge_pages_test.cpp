// Tests huge pages with `auto` on the kernel here: which parts of a region get them, and that they
// cost no more memory than huge_pages.h promises.
#include "core/huge_pages.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/region.h"
#include "support.h"

namespace heapwright::alloc {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr std::uint8_t kClass = 7;

// Whether a process that asks for huge pages gets them, and they have the size of a half. With
// pages of 16 KiB they have 32 MiB.
bool system_has_huge_pages() {
  const std::string folder = "/sys/kernel/mm/transparent_hugepage/";
  std::string line;
  std::getline(std::ifstream(folder + "enabled"), line);
  std::size_t bytes = 0;
  std::ifstream(folder + "hpage_pmd_size") >> bytes;
  return bytes == HugePages::kHalfBytes &&
         (line.find("[madvise]") != std::string::npos || line.find("[always]") != std::string::npos);
}

// A clock of CPU time, on which everything that is measured takes `step_us`.
std::uint64_t cpu_us = 0;
std::uint64_t step_us = 0;
std::uint64_t test_cpu_clock() { return cpu_us += step_us; }

class HugePagesTest : public testing::Test {
 protected:
  HugePagesTest() {
    step_us = 0;
    test::now_ms = 1'000'000;
    region.settings.clock = test::test_clock;
    region.use_cpu_clock(test_cpu_clock);
  }
  ~HugePagesTest() override { test::abandon(region); }
  void SetUp() override {
    if (!system_has_huge_pages()) {
      GTEST_SKIP() << "this system gives no huge pages of 2 MiB";
    }
  }

  // Takes superblocks for a class and writes them all over.
  std::vector<Superblock*> take(std::size_t bytes, bool small = true) {
    std::vector<Superblock*> taken;
    for (std::size_t have = 0; have < bytes; have += kSuperblockBytes) {
      Superblock* const one = region.take(1, kClass, small);
      one->size_class = kClass;
      one->kind = Kind::kBlocks;
      std::memset(memory_of(one), 1, kSuperblockBytes);
      taken.push_back(one);
    }
    return taken;
  }
  // A field of /proc/self/smaps, summed over the chunks of the region, in bytes.
  [[nodiscard]] std::size_t sum(const std::string& field) const {
    std::ifstream file("/proc/self/smaps");
    std::size_t bytes = 0;
    bool inside = false;
    for (std::string line; std::getline(file, line);) {
      unsigned long begin = 0;
      unsigned long end = 0;
      if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {  // NOLINT(cert-err34-c)
        inside = begin >= region.base() && begin < region.base() + region.bytes();
      } else if (inside && line.starts_with(field + ":")) {
        bytes += std::stoul(line.substr(field.size() + 1)) * 1024;
      }
    }
    return bytes;
  }
  // Halves that got a huge page with their first access.
  [[nodiscard]] std::size_t first_accesses() const {
    return sum("AnonHugePages") / HugePages::kHalfBytes - region.statistics().collapses;
  }
  void give_all(const std::vector<Superblock*>& taken) {
    for (Superblock* const one : taken) {
      region.give(one, 1);
    }
    region.purge_all();
  }
  [[nodiscard]] std::size_t chunks() const { return region.bytes() / kChunkBytes; }

  Region region;
};

TEST_F(HugePagesTest, ASmallHeapHasNone) {
  take(32 * kMiB - kSuperblockBytes);
  EXPECT_EQ(sum("AnonHugePages"), 0U);
}

TEST_F(HugePagesTest, ALargeClassGetsThemForALittleMemory) {
  const std::size_t bytes = 128 * kMiB;
  take(bytes);
  const std::size_t expected = bytes - HugePages::kSmallHeap - 2 * kChunkBytes;
  EXPECT_GE(sum("AnonHugePages"), expected);
  // The rest of each chunk's first superblock, and of one half.
  EXPECT_LE(sum("Rss"), bytes + chunks() * kSuperblockBytes + HugePages::kHalfBytes);
}

TEST_F(HugePagesTest, FullHalvesAreCollapsedWithinTheBudget) {
  step_us = 300;
  take(40 * kMiB);
  const std::size_t before = region.statistics().collapses;
  take(40 * kMiB);  // the clock stands still: there is no budget
  EXPECT_LE(region.statistics().collapses, before + 1);
  test::now_ms += 100'000;
  take(40 * kMiB);
  EXPECT_GE(region.statistics().collapses, before + 8) << "the first 32 MiB are 16 halves";
}

TEST_F(HugePagesTest, SlowFirstAccessesAreBounded) {
  step_us = 4'000;
  const std::size_t bytes = 128 * kMiB;
  take(bytes);
  EXPECT_EQ(first_accesses(), 1U) << "the first one shows that they are slow";
  EXPECT_LE(sum("Rss"), bytes + chunks() * kSuperblockBytes + HugePages::kHalfBytes);
  test::now_ms += 1'000;  // 10 ms, of which one access takes 3.7 more than page faults
  take(bytes);
  EXPECT_GE(first_accesses(), 3U);
  EXPECT_LE(first_accesses(), 4U);
  test::now_ms += 1'000'000;  // at most 100 ms of the share are unused
  take(bytes);
  EXPECT_GE(first_accesses(), 20U);
  EXPECT_LE(first_accesses(), 32U);
  EXPECT_LE(sum("Rss"), 3 * bytes + chunks() * kSuperblockBytes + HugePages::kHalfBytes);
}

TEST_F(HugePagesTest, FastAccessesPayForFewSlowOnes) {
  give_all(take(512 * kMiB));
  cpu_us = 0;
  step_us = 4'000;
  give_all(take(512 * kMiB));                         // purged chunks and halves count again
  const std::size_t measured = cpu_us / step_us / 2;  // the clock is read twice
  EXPECT_GE(measured, 10U);
  EXPECT_LE(measured, 30U) << "at most 100 ms of the share are unused";
}

TEST_F(HugePagesTest, AHalfThatWasRefusedGivesEverythingBack) {
  step_us = 4'000;
  std::vector<Superblock*> taken = take(64 * kMiB);
  std::shuffle(taken.begin(), taken.end(), std::mt19937(3));
  give_all(taken);
  EXPECT_LE(sum("Rss"), chunks() * 2 * platform::page_size());
  EXPECT_EQ(region.statistics().used_bytes, 0U);
}

TEST_F(HugePagesTest, ARefusalCostsNothing) {
  ASSERT_EQ(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
  take(128 * kMiB);
  EXPECT_EQ(sum("AnonHugePages"), 0U);
  EXPECT_EQ(region.statistics().collapses, 0U);
  EXPECT_EQ(chunks(), (128 * kMiB / kSuperblockBytes + kSuperblocksInChunk - 2) / (kSuperblocksInChunk - 1));
  ASSERT_EQ(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
}

TEST_F(HugePagesTest, OtherMemoryHasNone) {
  take(128 * kMiB, false);
  EXPECT_EQ(sum("AnonHugePages"), 0U);
}

TEST_F(HugePagesTest, AHalfWithAbsentPagesIsNotCollapsed) {
  take(40 * kMiB);
  for (Superblock* one = region.next_used(nullptr); one != nullptr; one = region.next_used(one)) {
    if (chunk_of(one)->huge == 0) {
      platform::purge(memory_of(one), kSuperblockBytes / 8);
    }
  }
  const std::size_t before = sum("Rss");
  const std::size_t collapses = region.statistics().collapses;
  test::now_ms += 100'000;
  take(64 * kMiB);
  EXPECT_EQ(region.statistics().collapses, collapses);
  EXPECT_LE(sum("Rss"), before + 64 * kMiB + chunks() * kSuperblockBytes + HugePages::kHalfBytes);
}

TEST_F(HugePagesTest, PurgingGivesEverythingBack) {
  std::vector<Superblock*> taken = take(128 * kMiB);
  std::shuffle(taken.begin(), taken.end(), std::mt19937(1));
  for (std::size_t i = 0; i < taken.size(); ++i) {
    region.give(taken[i], 1);
    if (i % 16 == 0) {
      region.purge_all();
    }
  }
  region.purge_all();
  EXPECT_LE(sum("Rss"), chunks() * 2 * platform::page_size());
  EXPECT_EQ(region.statistics().used_bytes, 0U);
}

TEST_F(HugePagesTest, ATenthIsAsSmallAsWithoutHugePages) {
  std::vector<Superblock*> taken = take(128 * kMiB);
  std::shuffle(taken.begin(), taken.end(), std::mt19937(1));
  const std::size_t left = taken.size() / 10;
  for (std::size_t i = left; i < taken.size(); ++i) {
    region.give(taken[i], 1);
  }
  const std::size_t allowed = left * kSuperblockBytes + region.allowance() * kSuperblockBytes;
  EXPECT_LE(sum("Rss"), allowed + chunks() * 2 * platform::page_size() + 2 * HugePages::kHalfBytes);
}

TEST_F(HugePagesTest, SuperblocksAreDistinctAndKeepTheirContents) {
  take(48 * kMiB);
  std::mt19937 random(7);
  std::vector<std::pair<Superblock*, std::size_t>> taken;
  std::set<Superblock*> seen;
  for (int step = 0; step < 20'000; ++step) {
    test::now_ms += 10;
    if (taken.size() < 600 || random() % 9 < 5) {
      const std::size_t count = random() % 8 == 0 ? 1 + random() % 20 : 1;
      const bool single = count == 1;
      Superblock* const first = region.take(count, single ? kClass : std::uint8_t{0}, single);
      ASSERT_NE(first, nullptr);
      first->size_class = kClass;
      first->kind = single ? Kind::kBlocks : Kind::kSpan;
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_TRUE(seen.insert(first + i).second);
        std::memcpy(memory_of(first + i), &first, sizeof(first));
        memory_of(first + i)[kSuperblockBytes - 1] = static_cast<char>(i);
      }
      taken.emplace_back(first, count);
    }
    if (taken.size() > 900 || random() % 9 < 4) {
      std::swap(taken[random() % taken.size()], taken.back());
      const auto [first, count] = taken.back();
      taken.pop_back();
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(std::memcmp(memory_of(first + i), &first, sizeof(first)), 0);
        ASSERT_EQ(memory_of(first + i)[kSuperblockBytes - 1], static_cast<char>(i));
        seen.erase(first + i);
      }
      region.give(first, count);
    }
    if (step % 4'000 == 3'999) {
      region.purge_all();
    }
  }
  EXPECT_GT(sum("AnonHugePages"), 0U);
}

}  // namespace
}  // namespace heapwright::alloc
