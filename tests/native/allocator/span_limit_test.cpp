// Tests the limit of the spans in a depot: its share, raised while spans are needed again.
#include "core/span_limit.h"

#include "support.h"

namespace heapwright::alloc::test {
namespace {

constexpr std::size_t kShare = 2 * 1024 * 1024 / kSuperblockBytes;  // with two heaps: of twice 2 MiB
constexpr std::size_t kRaised = 16 * 1024 * 1024 / kSuperblockBytes;

class SpanLimitTest : public testing::Test {
 protected:
  SpanLimitTest() {
    now_ms = 1'000'000;
    pool.region.settings.clock = test_clock;
    pool.region.heaps = 2;
    limit.update(pool, 0);
  }
  void take_again(int spans) {
    for (int i = 0; i < spans; ++i) {
      limit.add_refused();
    }
    for (int i = 0; i < spans; ++i) {
      limit.add_taken();
    }
  }

  Pool pool;
  SpanLimit limit;
};

TEST_F(SpanLimitTest, ItIsTheShareOfFreeMemory) {
  EXPECT_TRUE(limit.allows(kShare));
  EXPECT_FALSE(limit.allows(kShare + 1));
  EXPECT_FALSE(limit.is_much(kShare / 2));
  EXPECT_TRUE(limit.is_much(kShare / 2 + 1));
}

TEST_F(SpanLimitTest, BeforeTheFirstDecisionItIsSmall) {
  const SpanLimit fresh;
  EXPECT_TRUE(fresh.allows(SpanLimit::kMin));
  EXPECT_FALSE(fresh.allows(SpanLimit::kMin + 1));
}

TEST_F(SpanLimitTest, SpansTakenAgainRaiseItForATime) {
  limit.after_pop(kShare + 1);
  now_ms += pool.region.settings.delay_ms;
  limit.update(pool, kShare + 1);
  take_again(16);
  limit.update(pool, kShare + 1);
  EXPECT_TRUE(limit.allows(kRaised));
  EXPECT_FALSE(limit.allows(kRaised + 1));
  now_ms += 2 * pool.region.settings.delay_ms;  // all the time above its share
  limit.update(pool, kShare + 1);
  EXPECT_FALSE(limit.allows(kShare + 1));
}

TEST_F(SpanLimitTest, ItStaysRaisedWhileTheDepotIsInUse) {
  take_again(16);
  limit.update(pool, kRaised);
  for (int i = 0; i < 10; ++i) {
    limit.after_pop(0);
    now_ms += pool.region.settings.delay_ms;
    limit.update(pool, kRaised);
    EXPECT_TRUE(limit.allows(kRaised)) << i;
  }
}

TEST_F(SpanLimitTest, OldRefusalsAndNewSpansDoNotRaiseIt) {
  for (int i = 0; i < 100; ++i) {
    limit.add_taken();
  }
  for (int i = 0; i < 100; ++i) {
    limit.add_refused();
  }
  now_ms += pool.region.settings.delay_ms;
  limit.update(pool, 0);
  for (int i = 0; i < 100; ++i) {
    limit.add_taken();
  }
  limit.update(pool, 0);
  EXPECT_FALSE(limit.allows(kShare + 1));
}

TEST_F(SpanLimitTest, OneRefusalInSixteenIsTimeToDecide) {
  int decisions = 0;
  for (int i = 0; i < 160; ++i) {
    decisions += limit.add_refused() ? 1 : 0;
    limit.add_taken();
  }
  EXPECT_EQ(decisions, 10);
}

}  // namespace
}  // namespace heapwright::alloc::test
