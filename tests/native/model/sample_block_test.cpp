// Tests how a sample is cut into blocks.
#include "model/sample_block.h"

#include <gtest/gtest.h>

#include "../trace/vector_source.h"

namespace heapwright::model {
namespace {

using trace::Kind;

TEST(SampleBlock, TicksThatABlockHasNoRoomForComeInTheNextBlocks) {
  constexpr std::uint64_t kTicks = 9'000'000;
  trace::Header header;
  header.sample = 1U << 16U;
  trace::VectorSource source({{.kind = Kind::kTicks, .thread = 1, .value = kTicks},
                              {.kind = Kind::kMalloc, .thread = 1, .object = 0, .size = 24},
                              {.kind = Kind::kTicks, .thread = 1, .value = 6},
                              {.kind = Kind::kFree, .thread = 1, .object = 0}},
                             header);
  SampleBlockReader reader(source);
  std::uint64_t slots = 0;
  std::vector<SampleItem> items;
  for (SampleBlock block; reader.read(block);) {
    slots += block.slots.size();
    items.insert(items.end(), block.items.begin(), block.items.end());
  }
  EXPECT_EQ(slots, kTicks + 5) << "one is the allocation's own";
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0].position, kTicks);
  EXPECT_EQ(items[1].tick, kTicks + 6);
}

}  // namespace
}  // namespace heapwright::model
