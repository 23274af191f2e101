// Tests the exchange of copies between neighbouring objects of a sample.
#include "model/sample_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

namespace heapwright::model {
namespace {

constexpr std::uint32_t kCopies = 64;

class Exchange : public ::testing::Test {
 protected:
  // Adds an object with kCopies allocated copies, and lets it take part.
  std::uint32_t add(const trace::Event& allocation, bool freed = false) {
    Sampled object;
    object.output = outputs_++;
    object.allocation = allocation;
    object.scheduled_free.how = freed ? ScheduledFree::How::kSpread : ScheduledFree::How::kUnknown;
    const std::uint32_t index = sampled_.add(std::move(object));
    for (std::uint32_t i = 0; i < kCopies; ++i) {
      Copy copy;
      copy.sampled = index;
      copy.place = i;
      copy.allocated = true;
      copy.size = allocation.size;
      sampled_[index].copies.push_back(copies_.add(copy));
      born_of_.push_back(index);
    }
    exchange_.add_block({index});
    objects_.push_back(index);
    return index;
  }

  // Returns the objects for which the copies of an object were allocated.
  std::multiset<std::uint32_t> origins(std::uint32_t index) {
    std::multiset<std::uint32_t> found;
    for (const std::uint32_t copy : sampled_[index].copies) {
      found.insert(born_of_[copy]);
    }
    return found;
  }

  void expect_sound() {
    for (const std::uint32_t index : objects_) {
      EXPECT_EQ(sampled_[index].copies.size(), kCopies);
      for (std::uint32_t i = 0; i < sampled_[index].copies.size(); ++i) {
        const Copy& copy = copies_[sampled_[index].copies[i]];
        EXPECT_EQ(copy.sampled, index);
        EXPECT_EQ(copy.place, i);
      }
    }
  }

  static trace::Event of(std::uint64_t size, std::uint32_t thread = 0,
                         trace::Kind kind = trace::Kind::kMalloc) {
    return {.kind = kind, .thread = thread, .size = size};
  }

  Pool<Sampled> sampled_;
  Pool<Copy> copies_;
  std::mt19937_64 bits_{1};
  SampleExchange exchange_{sampled_, copies_, bits_};
  std::vector<std::uint32_t> born_of_;  // of each copy
  std::vector<std::uint32_t> objects_;
  std::uint64_t outputs_ = 0;
};

TEST_F(Exchange, CopiesMixWithThoseOfEightNeighboursOnEitherSide) {
  for (int i = 0; i < 100; ++i) {
    add(of(24));
  }
  expect_sound();
  for (std::uint32_t index = 20; index < 80; ++index) {
    const auto found = origins(index);
    EXPECT_GE(std::set<std::uint32_t>(found.begin(), found.end()).size(), 10U);
    EXPECT_LE(found.count(index), kCopies / 2);
    EXPECT_GE(*found.begin() + 8, index);
    EXPECT_LE(*found.rbegin(), index + 8);
  }
}

TEST_F(Exchange, OtherThreadsSizesAndCallsAreOtherKinds) {
  for (int i = 0; i < 20; ++i) {
    const std::vector<std::uint32_t> different{add(of(64)), add(of(80)), add(of(64, 1)),
                                               add(of(64, 0, trace::Kind::kCalloc))};
    expect_sound();
  }
  for (const std::uint32_t index : objects_) {
    for (const std::uint32_t origin : origins(index)) {
      EXPECT_EQ(origin % 4, index % 4);
    }
  }
}

TEST_F(Exchange, ObjectsWhoseFreeIsKnownAndLargeOnesKeepTheirCopies) {
  for (int i = 0; i < 20; ++i) {
    add(of(24), i % 2 == 0);
    add(of(100'000));
  }
  expect_sound();
  for (const std::uint32_t index : objects_) {
    if (index % 2 == 1 || index % 4 == 0) {
      EXPECT_EQ(origins(index).count(index), kCopies) << index;
    }
  }
}

TEST_F(Exchange, CopiesThatHaveGrownAreNotExchanged) {
  for (int i = 0; i < 20; ++i) {
    const std::uint32_t grown = add(of(24));
    for (const std::uint32_t copy : sampled_[grown].copies) {
      if (!copies_[copy].exchanged) {
        copies_[copy].size = 900;
      }
    }
    const std::vector<std::uint32_t> before = sampled_[grown].copies;
    add(of(24));
    for (std::size_t k = 0; k < before.size(); ++k) {
      EXPECT_TRUE(copies_[before[k]].size == 24 || sampled_[grown].copies[k] == before[k]);
    }
  }
  expect_sound();
}

TEST_F(Exchange, AnIndexThatIsUsedAgainIsAnotherObject) {
  const std::uint32_t old = add(of(24));
  for (const std::uint32_t copy : sampled_[old].copies) {
    copies_[copy].sampled = kNone;
  }
  sampled_.remove(old);
  objects_.clear();
  ASSERT_EQ(add(of(5000)), old);
  add(of(24));
  expect_sound();
  EXPECT_EQ(origins(old).count(old), kCopies);
}

}  // namespace
}  // namespace heapwright::model
