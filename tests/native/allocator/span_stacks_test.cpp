// Tests a heap's stacks of freed spans: the bounds of their fast paths, what the region knows of them, and
// how another thread ends their bias. Threads are in threads/depot_threads_test.cpp.
#include "core/span_stacks.h"

#include <array>
#include <vector>

#include "support.h"

namespace heapwright::alloc::test {
namespace {

int barriers = 0;
bool barrier_works = true;
bool count_barrier() {
  ++barriers;
  return barrier_works;
}

class SpanStacksTest : public testing::Test {
 protected:
  struct Inspected : SpanStacks {
    using SpanStacks::begin_change;
    using SpanStacks::end_change;
    using SpanStacks::SpanStacks;
  };

  SpanStacksTest() {
    now_ms = 1'000'000;
    barriers = 0;
    barrier_works = true;
    pool.region.settings.clock = test_clock;
    pool.order_all_threads = count_barrier;
    pool.join(stacks);
    pool.join(others);
    stacks.add_obtained(1000);
    for (Superblock& span : spans) {
      span.length = 1;
    }
  }
  void SetUp() override {
    if (!platform::may_order_all_threads()) {
      GTEST_SKIP() << "the kernel has no barrier in all threads";
    }
    bias();
  }
  void bias() {
    pool.bias(stacks);
    stacks.set_bounds(0, 1000);
  }
  // Takes the spans as another heap's thread.
  Superblock* take_as_another() {
    pool.end_bias(others, nullptr);
    return Pool::may_take_spans(stacks) ? stacks.take_all_spans() : nullptr;
  }
  [[nodiscard]] std::int64_t lent() const { return pool.region.lent.superblocks; }

  std::size_t freed_by_others = 0;
  Pool pool;
  Inspected stacks{pool, &freed_by_others};
  Inspected others{pool, &freed_by_others};
  std::array<Superblock, 100> spans{};
};

TEST_F(SpanStacksTest, TheLatestSpanOfALengthIsTakenFirst) {
  spans[2].length = 3;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(stacks.push_quickly(&spans[i]));
    EXPECT_EQ(spans[i].kind, Kind::kHeldBack);
  }
  EXPECT_EQ(stacks.span_superblocks(), 5U);
  EXPECT_EQ(stacks.pop_quickly(2), nullptr);
  EXPECT_EQ(stacks.pop_quickly(1), &spans[1]);
  EXPECT_EQ(stacks.pop_quickly(3), &spans[2]);
  EXPECT_EQ(stacks.pop_quickly(1), &spans[0]);
  EXPECT_EQ(stacks.pop_quickly(1), nullptr);
  EXPECT_EQ(stacks.pop_span(SpanStacks::kLongestSpan + 1), nullptr);
}

TEST_F(SpanStacksTest, TheFastPathsStopAtTheBounds) {
  for (int i = 0; i < 3; ++i) {
    stacks.push_span(&spans[i]);
  }
  stacks.set_bounds(2, 4);
  EXPECT_TRUE(stacks.push_quickly(&spans[3]));
  EXPECT_FALSE(stacks.push_quickly(&spans[4]));
  EXPECT_NE(stacks.pop_quickly(1), nullptr);
  EXPECT_NE(stacks.pop_quickly(1), nullptr);
  EXPECT_EQ(stacks.pop_quickly(1), nullptr);
  EXPECT_EQ(stacks.span_superblocks(), 2U);
  EXPECT_NE(stacks.pop_span(1), nullptr);
  stacks.close_bounds();
  EXPECT_FALSE(stacks.push_quickly(&spans[5]));
}

TEST_F(SpanStacksTest, AThreadKeepsNoMoreThanItHasAllocated) {
  stacks.add_obtained(-998);
  stacks.set_bounds(0, 1000);
  EXPECT_TRUE(stacks.push_quickly(&spans[0]));
  EXPECT_TRUE(stacks.push_quickly(&spans[1]));
  EXPECT_FALSE(stacks.has_allocated(1));
  EXPECT_FALSE(stacks.push_quickly(&spans[2]));
  EXPECT_NE(stacks.pop_quickly(1), nullptr);
  EXPECT_TRUE(stacks.has_allocated(1));
  EXPECT_TRUE(stacks.push_quickly(&spans[2]));
}

// A rise of 16 superblocks is reported at once, a fall of as many only when the fast path finds no span.
TEST_F(SpanStacksTest, ABurstThatRecursIsReportedOnce) {
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 40; ++i) {
      if (!stacks.push_quickly(&spans[i])) {
        stacks.push_span(&spans[i]);
        stacks.set_bounds(0, 1000);
      }
      EXPECT_GT(lent(), static_cast<std::int64_t>(stacks.span_superblocks()) - 16);
    }
    const std::int64_t before = lent();
    for (int i = 0; i < 40; ++i) {
      EXPECT_NE(stacks.pop_quickly(1), nullptr);
    }
    EXPECT_EQ(lent(), before);
  }
  EXPECT_EQ(stacks.pop_span(1), nullptr);
  EXPECT_EQ(lent(), 0);
}

TEST_F(SpanStacksTest, WithoutSpansNothingStaysLent) {
  for (int i = 0; i < 40; ++i) {
    stacks.push_span(&spans[i]);
  }
  stacks.set_bounds(0, 1000);
  for (int i = 0; i < 30; ++i) {
    EXPECT_NE(stacks.pop_quickly(1), nullptr);
  }
  stacks.take_all_own_spans();
  EXPECT_EQ(lent(), 0);
  EXPECT_FALSE(stacks.push_quickly(&spans[0])) << "the bounds were for what was reported before";
}

TEST_F(SpanStacksTest, AnotherThreadTakesTheSpansAfterABarrier) {
  stacks.push_quickly(&spans[0]);
  EXPECT_EQ(take_as_another(), &spans[0]);
  EXPECT_EQ(barriers, 1);
  EXPECT_FALSE(stacks.is_biased());
  EXPECT_FALSE(stacks.push_quickly(&spans[1]));
  stacks.push_span(&spans[1]);
  EXPECT_EQ(stacks.pop_quickly(1), nullptr);
  EXPECT_EQ(take_as_another(), &spans[1]);
  EXPECT_EQ(barriers, 1) << "none is needed without a bias";
  stacks.push_span(&spans[2]);
  EXPECT_EQ(stacks.pop_span(1), &spans[2]);
  bias();
  EXPECT_TRUE(stacks.push_quickly(&spans[3]));
}

TEST_F(SpanStacksTest, OnlyDepotsWithSpansLoseTheirBias) {
  EXPECT_EQ(take_as_another(), nullptr);
  EXPECT_EQ(barriers, 0);
  EXPECT_TRUE(stacks.is_biased());
  stacks.push_quickly(&spans[0]);
  pool.end_bias(stacks, nullptr);
  pool.end_bias(others, &others);
  EXPECT_EQ(barriers, 0) << "its own, and another one";
  EXPECT_TRUE(stacks.is_biased());
}

TEST_F(SpanStacksTest, SpansOfAThreadThatIsChangingTheStacksStay) {
  stacks.push_quickly(&spans[0]);
  EXPECT_TRUE(stacks.begin_change());
  EXPECT_EQ(take_as_another(), nullptr);
  stacks.end_change();
  EXPECT_EQ(take_as_another(), &spans[0]);
  EXPECT_EQ(barriers, 1);
}

// A seccomp filter that is installed later may refuse membarrier.
TEST_F(SpanStacksTest, WithoutABarrierTheThreadItselfEndsTheBias) {
  stacks.push_quickly(&spans[0]);
  barrier_works = false;
  EXPECT_EQ(take_as_another(), nullptr);
  EXPECT_EQ(take_as_another(), nullptr);
  EXPECT_FALSE(stacks.push_quickly(&spans[1]));
  stacks.push_span(&spans[1]);
  EXPECT_NE(take_as_another(), nullptr);
  EXPECT_EQ(stacks.span_superblocks(), 0U);
  EXPECT_EQ(barriers, 1);
}

TEST_F(SpanStacksTest, BarriersArePaidForByTime) {
  const auto ends = [&] {
    int count = 0;
    for (int i = 0; i < 100; ++i) {
      stacks.push_span(&spans[0]);
      take_as_another();
      pool.bias(stacks);
      count += stacks.is_biased() ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(ends(), 16) << "saved up";
  now_ms += 8;
  pool.bias(stacks);
  EXPECT_EQ(ends(), 1);
  EXPECT_EQ(barriers, 19);
  now_ms += 1'000'000;
  pool.bias(stacks);
  EXPECT_EQ(ends(), 16);
}

}  // namespace
}  // namespace heapwright::alloc::test
