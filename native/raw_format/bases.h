// The addresses that a block's addresses are told from: the encoder and the decoder keep the same four. format.h says why.
#pragma once

#include <algorithm>
#include <array>

#include "format.h"

namespace heapwright::raw {

// From a base to an address, in units: small for near ones in either direction.
struct Distance {
  std::uint64_t zigzag;
  unsigned base;
};

class Bases {
 public:
  // From the nearest of them. The base is kept in the low bits while they are compared, so that no branch depends on which
  // it is; a unit has 61 bits, its zigzag 62.
  [[gnu::always_inline]] Distance nearest(std::uint64_t unit) const {
    std::array<std::uint64_t, kBases> distances;
    for (unsigned i = 0; i < kBases; ++i) {
      const auto apart = static_cast<std::int64_t>(unit - at_[i]);
      const auto zigzag = (static_cast<std::uint64_t>(apart) << 1) ^ static_cast<std::uint64_t>(apart >> 63);
      distances[i] = zigzag * kBases + i;
    }
    static_assert(kBases == 4);
    const std::uint64_t least =
        std::min(std::min(distances[0], distances[1]), std::min(distances[2], distances[3]));
    return {.zigzag = least / kBases, .base = static_cast<unsigned>(least % kBases)};
  }

  // What lies at this distance.
  std::uint64_t unit(Distance distance) const {
    return at_[distance.base] + ((distance.zigzag >> 1) ^ (0 - (distance.zigzag & 1)));
  }

  // An address was told: its base follows it, or it is a place of its own.
  [[gnu::always_inline]] void update(Distance distance, std::uint64_t unit) {
    const bool place = distance.zigzag > 0xffff;
    next_ = (next_ + unsigned{place}) % kBases;
    at_[place ? next_ : distance.base] = unit;
  }

  // The next in turn becomes this address.
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
