// Tests the quarantine: its bounds, and that items leave in another order than they came.
#include "core/quarantine.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace heapwright::alloc {
namespace {

struct Piece {
  int number;
  std::size_t bytes;
};
std::size_t bytes_of(const Piece& piece) { return piece.bytes; }
using Waiting = Quarantine<Piece, 16, bytes_of>;

TEST(Quarantine, HoldsSoManyAndLosesNone) {
  Waiting waiting;
  waiting.seed(1);
  std::multiset<int> inside;
  for (int i = 0; i < 1000; ++i) {
    const Piece old = waiting.put({i, 1});
    if (old.bytes != 0) {
      ASSERT_EQ(inside.erase(old.number), 1U);
    }
    inside.insert(i);
    std::size_t count = 0;
    waiting.each([&](const Piece&) { ++count; });
    ASSERT_EQ(count, inside.size());
    ASSERT_LE(count, 16U);
  }
}

TEST(Quarantine, TheNewestBlockLeavesLast) {
  Waiting waiting;
  waiting.seed(1);
  for (int i = 0; i < 1000; ++i) {
    waiting.put({i, 100});
    std::size_t left = 0;
    for (Piece old = waiting.evict(150); old.bytes != 0; old = waiting.evict(150)) {
      ASSERT_NE(old.number, i);
      ++left;
    }
    ASSERT_LE(left, 1U);
  }
  EXPECT_EQ(waiting.evict(50).number, 999);
  EXPECT_EQ(waiting.evict(0).bytes, 0U);
}

TEST(Quarantine, BlocksStayForAnUnpredictableTime) {
  Waiting waiting;
  waiting.seed(1);
  std::set<int> delays;
  for (int i = 0; i < 1000; ++i) {
    if (const Piece old = waiting.put({i, 1}); old.bytes != 0) {
      delays.insert(i - old.number);
    }
  }
  EXPECT_GT(delays.size(), 30U);
  EXPECT_GT(*delays.rbegin(), 32);
  EXPECT_LT(*delays.begin(), 4);
}

}  // namespace
}  // namespace heapwright::alloc
