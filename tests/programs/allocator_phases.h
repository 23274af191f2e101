// Chooses the sizes that a fuzzer requests, in phases. Each phase has its own kind of sizes, its
// own bias to growing or shrinking, and its own order of frees, so that pages become full, empty
// and half full in turn.
#pragma once

#include "allocator_shadow.h"

namespace heapwright::shadow {

enum class Sizes { kMixed, kTiny, kFew, kBoundaries, kMedium, kLarge, kCount };
enum class Order { kRandom, kNewest, kSweep, kCount };

class Phases {
 public:
  explicit Phases(Random& random) : random_(random) {}

  // Call this before each operation.
  void step() {
    if (left_-- > 0) {
      return;
    }
    sizes_ = static_cast<Sizes>(random_.below(static_cast<std::uint64_t>(Sizes::kCount)));
    order = static_cast<Order>(random_.below(static_cast<std::uint64_t>(Order::kCount)));
    growth = random_.between(20, 80);
    left_ = sizes_ == Sizes::kLarge ? random_.between(20, 150) : random_.between(200, 8000);
    for (std::size_t& size : few_) {
      size = log_uniform(random_.between(4, 16));
    }
  }

  std::size_t size() {
    switch (sizes_) {
      case Sizes::kTiny:
        return random_.below(257);
      case Sizes::kFew:
        return few_[random_.below(4)];
      case Sizes::kBoundaries:
        return boundary();
      case Sizes::kMedium:
        return log_uniform(random_.once_in(16) ? 20 : 17);
      case Sizes::kLarge:
        return log_uniform(random_.once_in(8) ? 26 : 22);
      default:
        return random_.once_in(8) ? boundary() : log_uniform(random_.once_in(512) ? 26 : 14);
    }
  }

  Order order = Order::kRandom;
  std::uint64_t growth = 50;  // per cent of the operations that allocate

 private:
  std::size_t log_uniform(std::uint64_t bits) {
    return random_.below(std::uint64_t{1} << random_.between(0, bits));
  }

  // Returns a size near the ends of size classes: powers of two, multiples of 8, 16 and of the
  // page, plus or minus one.
  std::size_t boundary() {
    const std::uint64_t kind = random_.below(4);
    const std::uint64_t bits = random_.once_in(200) ? random_.between(17, 25) : random_.between(0, 16);
    std::size_t size = kind == 0   ? std::size_t{1} << bits
                       : kind == 1 ? 8 * random_.between(1, 64)
                       : kind == 2 ? 16 * random_.between(1, 256)
                                   : page_size() * random_.between(1, 40);
    if (random_.once_in(4)) {
      size += size / 4 * random_.between(1, 3);  // four classes to a doubling, as many allocators have
    }
    return size + random_.below(3) - 1;
  }

  Random& random_;
  Sizes sizes_ = Sizes::kMixed;
  std::uint64_t left_ = 0;
  std::size_t few_[4] = {};
};

}  // namespace heapwright::shadow
