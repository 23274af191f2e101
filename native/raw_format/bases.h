// Keeps the four base addresses from which the addresses of a raw block are counted. The encoder
// and the decoder of a raw block keep the same four; format.h says why.
#pragma once

#include <algorithm>
#include <array>

#include "format.h"

namespace heapwright::raw {

// The distance from a base to an address in units of kAddressUnit, zigzag-encoded.
struct Distance {
  std::uint64_t zigzag;
  unsigned base;
};

class Bases {
 public:
  // Returns the distance of an address from the nearest base. The comparison carries the number of
  // the base in the low bits, so that it needs no branch; a unit has 61 bits, its zigzag 62.
  [[gnu::always_inline]] Distance nearest(std::uint64_t unit) const {
    std::array<std::uint64_t, kBases> distances;
    for (unsigned i = 0; i < kBases; ++i) {
      const auto apart = static_cast<std::int64_t>(unit - at_[i]);
      const auto zigzag = (static_cast<std::uint64_t>(apart) << 1) ^ static_cast<std::uint64_t>(apart >> 63);
      distances[i] = zigzag * kBases + i;
    }
    static_assert(kBases == 4);
    const std::uint64_t best =
        std::min(std::min(distances[0], distances[1]), std::min(distances[2], distances[3]));
    return {.zigzag = best / kBases, .base = static_cast<unsigned>(best % kBases)};
  }

  // Returns the address at this distance.
  std::uint64_t unit(Distance distance) const {
    return at_[distance.base] + ((distance.zigzag >> 1) ^ (0 - (distance.zigzag & 1)));
  }

  // Takes in an address that was written or read: it replaces its base if it is near, else the next
  // base in turn.
  [[gnu::always_inline]] void update(Distance distance, std::uint64_t unit) {
    const bool far = distance.zigzag > 0xffff;
    next_ = (next_ + unsigned{far}) % kBases;
    at_[far ? next_ : distance.base] = unit;
  }

  // Replaces the next base in turn by an address that is too far from every base.
  Distance replace_next(std::uint64_t unit) {
    next_ = (next_ + 1) % kBases;
    at_[next_] = unit;
    return {.zigzag = 0, .base = next_};
  }

 private:
  std::array<std::uint64_t, kBases> at_{};
  unsigned next_ = 0;
};

}  // namespace heapwright::raw
