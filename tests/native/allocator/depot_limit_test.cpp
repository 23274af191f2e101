// Tests the limit of a depot: its share, raised for a time when refused lists are needed again.
#include "core/depot_limit.h"

#include "support.h"

namespace heapwright::alloc::test {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

class DepotLimitTest : public testing::Test {
 protected:
  using Limit = DepotLimit<Usual>;
  static constexpr std::size_t kClass = SizeClasses<8>::of(1024);

  DepotLimitTest() {
    now_ms = 1'000'000;
    pool.region.settings.clock = test_clock;
    limit.update(pool, 0, 0);
  }
  // Refuses so many KiB, and takes them again.
  void take_again(std::size_t kib) {
    limit.add_refused(kClass, static_cast<std::int64_t>(kib));
    limit.add_taken(kClass, kib);
  }

  Pool pool;
  Limit limit;
};

TEST_F(DepotLimitTest, ItIsTheShareOfFreeMemory) {
  const std::size_t share = 3 * kMiB / 2;  // three quarters of 2 MiB
  EXPECT_TRUE(limit.allows(share));
  EXPECT_FALSE(limit.allows(share + 1));
  EXPECT_FALSE(limit.is_far_below(share + share / 4));
  EXPECT_TRUE(limit.is_far_below(share + share / 4 + 64));
}

TEST_F(DepotLimitTest, BeforeTheFirstDecisionItIsSmall) {
  const Limit fresh;
  EXPECT_TRUE(fresh.allows(Limit::kMinBytes));
  EXPECT_FALSE(fresh.allows(Limit::kMinBytes + 1));
}

TEST_F(DepotLimitTest, PrematureReturnsRaiseItForATime) {
  EXPECT_FALSE(limit.may_fall());
  take_again(1024);  // 8 ms of 128 KiB
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_TRUE(limit.may_fall());
  EXPECT_TRUE(limit.allows(16 * kMiB));
  EXPECT_FALSE(limit.allows(16 * kMiB + 1));
  now_ms += 7;
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_TRUE(limit.allows(10 * kMiB));
  now_ms += 1;
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_FALSE(limit.allows(10 * kMiB));
  EXPECT_FALSE(limit.may_fall());
}

TEST_F(DepotLimitTest, ManyHeapsShareWhatItIsRaisedTo) {
  pool.region.heaps = 32;
  take_again(1024);
  limit.update(pool, 0, 0);
  EXPECT_TRUE(limit.allows(2 * kMiB));
  EXPECT_FALSE(limit.allows(2 * kMiB + 1));
}

TEST_F(DepotLimitTest, ItIsRaisedForTheDelayAtMost) {
  take_again(1024 * 1024);
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_TRUE(limit.may_fall());
  now_ms += pool.region.settings.delay_ms;
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_FALSE(limit.may_fall());
}

TEST_F(DepotLimitTest, SmallAmountsAddUp) {
  for (int i = 0; i < 4; ++i) {
    limit.update(pool, 10 * kMiB, 0);
    EXPECT_FALSE(limit.allows(10 * kMiB)) << i;
    take_again(32);
  }
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_TRUE(limit.allows(10 * kMiB));
}

TEST_F(DepotLimitTest, OnlyRefusedBlocksOfTheSameClassCount) {
  limit.add_taken(kClass, 100'000);
  limit.add_refused(kClass, 100'000);
  limit.add_taken(kClass + 1, 100'000);
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_FALSE(limit.allows(10 * kMiB));
  limit.add_taken(kClass, 200'000);
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_TRUE(limit.allows(10 * kMiB));
}

TEST_F(DepotLimitTest, OldRefusalsAreForgotten) {
  for (std::uint64_t waited = 0; waited < 100; ++waited) {
    limit.add_refused(kClass, 100);
    limit.update(pool, 10 * kMiB, 0);
    now_ms += pool.region.settings.delay_ms / 2;
  }
  limit.update(pool, 10 * kMiB, 0);
  limit.add_taken(kClass, 10'000);
  limit.update(pool, 10 * kMiB, 0);
  now_ms += 2;  // of two refusals, not of a hundred
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_FALSE(limit.may_fall());
}

// The region does not purge: no limit. Later it does.
class UnlimitedDepotTest : public DepotLimitTest {
 protected:
  UnlimitedDepotTest() {
    pool.region.give(pool.region.take(60), 60);
    pool.region.take(60);  // the purge was premature: 60 times 4 ms
    limit.update(pool, 100 * kMiB, 0);
  }
  ~UnlimitedDepotTest() override { abandon(pool.region); }
};

TEST_F(UnlimitedDepotTest, ItMayHoldTwiceAsMuch) {
  EXPECT_TRUE(limit.allows(200 * kMiB));
  EXPECT_TRUE(limit.may_fall());
}

TEST_F(UnlimitedDepotTest, ADepotInUseStaysUnlimited) {
  for (int i = 0; i < 10; ++i) {
    now_ms += pool.region.settings.delay_ms / 2;
    limit.after_pop(kMiB);
    limit.update(pool, 100 * kMiB, 0);
    EXPECT_TRUE(limit.allows(200 * kMiB)) << i;
  }
}

TEST_F(UnlimitedDepotTest, OneThatIsNotUsedHasALimitAgain) {
  for (int i = 0; i < 10; ++i) {
    now_ms += pool.region.settings.delay_ms / 2;
    limit.after_pop(99 * kMiB);
    limit.update(pool, 100 * kMiB, 0);
  }
  EXPECT_FALSE(limit.allows(99 * kMiB));
  EXPECT_FALSE(limit.may_fall());
}

TEST_F(UnlimitedDepotTest, OneThatHasDoubledHasALimitAgain) {
  now_ms += pool.region.settings.delay_ms;
  limit.after_pop(0);
  limit.update(pool, 201 * kMiB, 0);
  EXPECT_FALSE(limit.allows(99 * kMiB));
}

TEST_F(DepotLimitTest, AfterAResetNothingIsRaised) {
  take_again(1024);
  limit.reset();
  limit.update(pool, 10 * kMiB, 0);
  EXPECT_FALSE(limit.may_fall());
}

}  // namespace
}  // namespace heapwright::alloc::test
