// Tests where the copies of sampled objects are allocated.
#include "model/sample_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace heapwright::model {
namespace {

constexpr double kLast = 1001;
constexpr std::uint32_t kCopies = 64;

class Places : public ::testing::Test {
 protected:
  // Chooses the places of kCopies copies of each object; object i is at the place 10 (i + 1).
  std::vector<std::pair<double, std::uint32_t>> chosen(std::uint32_t objects, double lifetime,
                                                       std::uint32_t kinds = 1) {
    SamplePlaces places([this] { return std::uniform_real_distribution<double>(0, 1)(bits_); });
    const auto at = [](std::uint32_t object) { return 10.0 * (object + 1); };
    for (std::uint32_t i = 0; i < objects * kCopies; ++i) {
      places.add(i, SamplePlaces::kind_of(24, i / kCopies % kinds), at(i / kCopies), lifetime);
    }
    std::vector<std::pair<double, std::uint32_t>> found;  // place, object
    places.choose(kLast, [&](std::uint32_t copy, double offset) {
      found.emplace_back(at(copy / kCopies) + offset, copy / kCopies);
    });
    std::sort(found.begin(), found.end());
    return found;
  }

 private:
  std::mt19937_64 bits_{1};
};

TEST_F(Places, EachCopyHasAPlaceInTheBlock) {
  const auto found = chosen(99, 4000);
  ASSERT_EQ(found.size(), 99U * kCopies);
  EXPECT_GE(found.front().first, 0);
  EXPECT_LE(found.back().first, kLast);
}

TEST_F(Places, CopiesLieAmongThoseOfAFewNeighbours) {
  const auto found = chosen(99, 4000);
  // At the borders of the block a copy can only be on one side of its object.
  for (std::size_t i = 20 * kCopies; i < 80 * kCopies; i += kCopies) {
    std::set<std::uint32_t> objects;
    for (std::size_t k = i; k < i + kCopies; ++k) {
      objects.insert(found[k].second);
    }
    EXPECT_GE(objects.size(), 6U);
    EXPECT_LE(*objects.rbegin() - *objects.begin(), 40U);
  }
}

TEST_F(Places, CopiesAreAllocatedWhileTheirObjectLives) {
  for (const auto& [place, object] : chosen(99, 40)) {
    EXPECT_LT(std::abs(place - 10.0 * (object + 1)), 40);
  }
}

TEST_F(Places, KindsAreNotMixed) {
  // Of each kind there are three objects, all over the block. A kind has the places that its own
  // objects drew, and these are in their order but for the neighbours.
  std::vector<double> sums(33);
  for (const auto& [place, object] : chosen(99, 40, 33)) {
    sums[object % 33] += place;
  }
  for (std::uint32_t kind = 0; kind < sums.size(); ++kind) {
    EXPECT_NEAR(sums[kind] / (3 * kCopies), 10.0 * (kind + 1) + 330, 10);
  }
}

TEST(PlacesOfNothing, AreNone) {
  SamplePlaces places([] { return 0.5; });
  places.choose(1, [](std::uint32_t, double) { FAIL(); });
}

}  // namespace
}  // namespace heapwright::model
