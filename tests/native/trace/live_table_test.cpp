// Tests the table of live objects against a map, and with ids that were chosen to collide.
#include "trace/live_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace heapwright::trace {
namespace {

TEST(LiveTable, IsAMap) {
  std::mt19937_64 random(1);  // NOLINT: the same sequence every time
  LiveTable<std::uint64_t> table;
  std::map<std::uint64_t, std::uint64_t> shadow;
  for (std::uint64_t i = 0; i < 100'000; ++i) {
    const std::uint64_t id = random() % 3000 << random() % 3 * 20;
    std::uint64_t* const found = table.find(id);
    const auto known = shadow.find(id);
    ASSERT_EQ(found != nullptr, known != shadow.end());
    if (found == nullptr) {
      table.insert(id, i);
      shadow[id] = i;
    } else {
      ASSERT_EQ(*found, known->second);
      table.erase(id);
      shadow.erase(known);
    }
    ASSERT_EQ(table.size(), shadow.size());
  }
  table.each([&](std::uint64_t id, std::uint64_t value) { EXPECT_EQ(shadow.at(id), value); });
}

// Counts its moves. An erase moves each later cell of its run, so the count shows how long the runs
// are.
struct Counted {
  Counted() = default;
  Counted(Counted&&) noexcept { ++moves; }
  Counted& operator=(Counted&&) noexcept {
    ++moves;
    return *this;
  }
  static inline std::uint64_t moves = 0;
};

// Returns the number of moves for each of 20,000 ids that are inserted and then erased in the same
// order.
double moves_of(std::uint64_t (*id)(std::uint64_t)) {
  constexpr std::uint64_t kIds = 20'000;
  LiveTable<Counted> table;
  for (std::uint64_t i = 0; i < kIds; ++i) {
    table.insert(id(i), {});
  }
  Counted::moves = 0;
  for (std::uint64_t i = 0; i < kIds; ++i) {
    table.erase(id(i));
  }
  EXPECT_EQ(table.size(), 0U);
  return static_cast<double>(Counted::moves) / kIds;
}

TEST(LiveTable, IdsCannotBeChosenToMeet) {
  // Ids that would collide if the factor were known; then ids that differ only in upper bits, or
  // only in lower ones.
  EXPECT_LT(moves_of([](std::uint64_t i) { return (i << 40 | 7) * 0xF1DE83E19937733D << 5; }), 30);
  EXPECT_LT(moves_of([](std::uint64_t i) { return i << 44; }), 30);
  EXPECT_LT(moves_of([](std::uint64_t i) { return i << 24; }), 30);
  EXPECT_LT(moves_of([](std::uint64_t i) { return i * 32; }), 30);
  EXPECT_LT(moves_of([](std::uint64_t i) { return i; }), 30);
}

TEST(LiveTable, EveryProcessHasAKeyOfItsOwn) {
  const HashKey one = random_key();
  const HashKey other = random_key();
  EXPECT_NE(one.added, other.added);
  EXPECT_NE(one.factor, other.factor);
  EXPECT_NE(kHashKey.added, HashKey{}.added);
  EXPECT_EQ(kHashKey.factor % 2, 1U);
}

}  // namespace
}  // namespace heapwright::trace
