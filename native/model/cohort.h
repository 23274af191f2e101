// Keeps the live blocks with long lifetimes of one size class, in the order of their allocation,
// and picks which of them ends.
//
// An allocator often places blocks next to each other that it hands out one after the other. So
// neighbours here are probably neighbours in memory. The next end is the neighbour of the one that
// ended last, or any block of an age that is wanted. When a thread of this group ends, other groups
// free the blocks that are live then. The group itself frees the blocks allocated after that.
// Either rule is dropped if no block of a wanted age is left.
//
//     all_    │ older than the last end of a thread │ allocated after it │
//             0                                   first_own_          size()
//
// Invariant: starts_[w] is the index in all_ where the lifetimes of window w begin. Ended ones keep
// their index until compact().
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "model.h"

namespace heapwright::model {

// Random numbers that are the same on every machine for a seed. The distributions of <random> are
// not.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : bits_(seed) {}
  double uniform() { return static_cast<double>(bits_() >> 11) * 0x1.0p-53; }
  std::uint64_t below(std::uint64_t n) {
    return std::min(n - 1, static_cast<std::uint64_t>(uniform() * static_cast<double>(n)));
  }

 private:
  std::mt19937_64 bits_;
};

// A live block of the synthetic trace.
struct LiveBlock {
  std::uint64_t object = 0;
  std::uint64_t size = 0;
  std::uint32_t thread = 0;
  bool alive = true;
};

class Cohort {
 public:
  std::size_t alive() const { return alive_; }

  void start_window() {
    if (all_.size() > 64 && alive_ * 2 < all_.size()) {
      compact();
    }
    starts_.push_back(all_.size());
  }
  void add(const LiveBlock& held) {
    all_.push_back(held);
    ++alive_;
  }

  // A thread of the group has ended: other groups end the blocks that are here now.
  void mark_for_other_groups() { first_own_ = all_.size(); }

  // Takes out one block; there must be one alive.
  //   wanted      ends still to come, by age; one is subtracted from the bin of the block
  //   kind        the class: how often neighbours end after each other
  //   for_others  whether another group ends the block
  //   rng         draws
  LiveBlock take(std::array<std::uint64_t, kAgeBins>& wanted, const SizeClass& kind, bool for_others,
                 Rng& rng) {
    const std::uint64_t draw = rng.below(1000);
    std::size_t at = all_.size();
    if (draw < kind.in_order) {
      at = forward(last_ + 1, std::min(all_.size(), last_ + 65));
    } else if (draw < kind.in_order + kind.in_reverse) {
      at = backward(last_, last_ < 65 ? 0 : last_ - 65);
    }
    if (at >= all_.size() || wanted[bin_of(at)] == 0 || (first_own_ > 0 && for_others != (at < first_own_))) {
      at = anywhere(wanted, for_others, rng);
    }
    unsigned bin = bin_of(at);
    for (unsigned i = 0; wanted[bin] == 0 && i < kAgeBins; ++i) {
      bin = i;
    }
    wanted[bin] -= wanted[bin] > 0 ? 1 : 0;
    all_[at].alive = false;
    --alive_;
    last_ = at;
    return all_[at];
  }

  template <typename Visit>
  void each(Visit&& visit) const {
    for (const LiveBlock& held : all_) {
      if (held.alive) {
        visit(held);
      }
    }
  }

 private:
  // The bin of the age of an index. Lifetimes of the current window count as one window old.
  unsigned bin_of(std::size_t at) const {
    const auto after =
        static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) - starts_.begin());
    const std::size_t age = std::max<std::size_t>(1, starts_.size() - after);
    unsigned bin = 0;
    while (bin + 1 < kAgeBins && (age >> (bin + 1)) != 0) {
      ++bin;
    }
    return bin;
  }
  std::size_t forward(std::size_t from, std::size_t to) const {
    for (std::size_t at = from; at < to; ++at) {
      if (all_[at].alive) {
        return at;
      }
    }
    return all_.size();
  }
  std::size_t backward(std::size_t from, std::size_t to) const {
    for (std::size_t at = std::min(from, all_.size()); at > to; --at) {
      if (all_[at - 1].alive) {
        return at - 1;
      }
    }
    return all_.size();
  }
  std::size_t within(std::size_t low, std::size_t high, Rng& rng) const {
    for (int i = 0; i < 8 && low < high; ++i) {
      const std::size_t at = low + rng.below(high - low);
      if (all_[at].alive) {
        return at;
      }
    }
    const std::size_t middle = low < high ? low + rng.below(high - low) : low;
    const std::size_t at = forward(middle, high);
    return at < all_.size() ? at : forward(low, middle);
  }
  // The range of indices of an age: [2^bin, 2^(bin+1)) windows; the last bin has no upper end.
  std::pair<std::size_t, std::size_t> range(unsigned bin) const {
    const std::size_t now = starts_.size() - 1;
    const std::size_t oldest = bin + 1 == kAgeBins ? now + 1 : (std::size_t{2} << bin) - 1;
    const std::size_t youngest = std::size_t{1} << bin;
    return youngest > now ? std::pair<std::size_t, std::size_t>{0, 0}
                          : std::pair{oldest > now ? 0 : starts_[now - oldest], starts_[now - youngest + 1]};
  }
  // Picks an index of a wanted age in [from, to); size() if there is none.
  std::size_t of_age(const std::array<std::uint64_t, kAgeBins>& wanted, std::size_t from, std::size_t to,
                     Rng& rng) const {
    std::array<std::pair<std::size_t, std::size_t>, kAgeBins> ranges;
    std::uint64_t sum = 0;
    for (unsigned bin = 0; bin < kAgeBins; ++bin) {
      const auto [low, high] = range(bin);
      ranges[bin] = {std::max(low, from), std::min(high, to)};
      sum += ranges[bin].first < ranges[bin].second ? wanted[bin] : 0;
    }
    if (sum == 0) {
      return all_.size();
    }
    std::uint64_t draw = rng.below(sum);
    for (unsigned bin = 0; bin < kAgeBins; ++bin) {
      if (const auto [low, high] = ranges[bin]; low < high) {
        if (draw < wanted[bin]) {
          return within(low, high, rng);
        }
        draw -= wanted[bin];
      }
    }
    return all_.size();
  }
  std::size_t anywhere(const std::array<std::uint64_t, kAgeBins>& wanted, bool for_others, Rng& rng) const {
    std::size_t at = all_.size();
    if (first_own_ > 0) {
      at = of_age(wanted, for_others ? 0 : first_own_, for_others ? first_own_ : all_.size(), rng);
    }
    if (at >= all_.size()) {
      at = of_age(wanted, 0, all_.size(), rng);
    }
    return at < all_.size() ? at : within(0, all_.size(), rng);
  }
  void compact() {
    std::size_t to = 0;
    std::size_t window = 0;
    std::size_t last = 0;
    std::size_t left = 0;
    for (std::size_t at = 0; at < all_.size(); ++at) {
      for (; window < starts_.size() && starts_[window] == at; ++window) {
        starts_[window] = to;
      }
      last = at == last_ ? to : last;
      if (all_[at].alive) {
        all_[to++] = all_[at];
      }
      left = at + 1 == first_own_ ? to : left;
    }
    for (; window < starts_.size(); ++window) {
      starts_[window] = to;
    }
    all_.resize(to);
    last_ = last;
    first_own_ = left;
  }

  std::vector<LiveBlock> all_;
  std::vector<std::size_t> starts_;
  std::size_t alive_ = 0;
  std::size_t last_ = 0;
  std::size_t first_own_ = 0;
};

}  // namespace heapwright::model
