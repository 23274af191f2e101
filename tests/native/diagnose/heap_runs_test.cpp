// Tests which mappings of another process count as one heap.
#include <gtest/gtest.h>

#include "arena_layout.h"

namespace heapwright::diagnose {
namespace {

Mapping mapping(std::uint64_t begin, std::uint64_t end, const char* path, bool writable = true) {
  return {.begin = begin, .end = end, .writable = writable, .private_ = true, .path = path};
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> runs(const std::vector<Mapping>& mappings,
                                                          std::uint64_t end) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> found;
  for (const Mapping& run : heap_runs(mappings, end)) {
    found.emplace_back(run.begin, run.end);
  }
  return found;
}

using Runs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

TEST(HeapRuns, JoinsAdjacentMappingsWhateverTheirFlags) {
  EXPECT_EQ(
      runs({mapping(0x1000, 0x2000, "/bin/x"), mapping(0x2000, 0x3000, ""), mapping(0x5000, 0x6000, "[heap]"),
            mapping(0x6000, 0x7000, "[heap]", false), mapping(0x7000, 0x9000, "[heap]")},
           0x9000),
      (Runs{{0x5000, 0x9000}}));
}

TEST(HeapRuns, KeepsMappingsApartThatAreNotAdjacent) {
  EXPECT_EQ(runs({mapping(0x5000, 0x6000, "[heap]"), mapping(0x7000, 0x9000, "[heap]")}, 0x9000),
            (Runs{{0x5000, 0x6000}, {0x7000, 0x9000}}));
}

TEST(HeapRuns, TakesAnUnnamedMappingOnlyBelowTheEndOfTheLastChunk) {
  const std::vector<Mapping> mappings = {mapping(0x5000, 0x6000, "[heap]"), mapping(0x6000, 0x8000, "")};
  EXPECT_EQ(runs(mappings, 0x7000), (Runs{{0x5000, 0x8000}}));
  EXPECT_EQ(runs(mappings, 0x6000), (Runs{{0x5000, 0x6000}}));
}

TEST(HeapRuns, TakesNoUnnamedMappingBehindAGap) {
  EXPECT_EQ(runs({mapping(0x5000, 0x6000, "[heap]"), mapping(0x7000, 0x8000, "")}, 0x8000),
            (Runs{{0x5000, 0x6000}}));
}

TEST(HeapRuns, AreNoneWithoutAHeap) { EXPECT_TRUE(runs({mapping(0x6000, 0x8000, "")}, 0x8000).empty()); }

}  // namespace
}  // namespace heapwright::diagnose
