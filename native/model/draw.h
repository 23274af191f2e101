// Draws sizes and kinds of allocation so that every count is right at all times. It does not draw
// at random: sizes follow multiples of the golden ratio, and a kind is chosen each time its running
// sum passes one half.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "model.h"
#include "trace/event.h"

namespace heapwright::model {

// Chooses a share of a sequence, as evenly as possible.
class Share {
 public:
  explicit Share(double share = 0) : share_(share) {}
  bool next() {
    sum_ += share_;
    const bool chosen = sum_ >= 0.5;
    sum_ -= chosen ? 1 : 0;
    return chosen;
  }

 private:
  double share_;
  double sum_ = 0;
};

// Draws sizes and kinds of allocation of one class.
class Drawer {
 public:
  explicit Drawer(const SizeClass& kind) {
    for (const auto& [size, count] : kind.sizes) {
      total_ += static_cast<double>(count);
    }
    double sum = 0;
    for (const auto& [size, count] : kind.sizes) {
      sum += static_cast<double>(count);
      sizes_.emplace_back(sum / total_, size);
    }
    calloc_ = Share(static_cast<double>(kind.callocs) / total_);
    for (const auto& [alignment, count] : kind.alignments) {
      aligned_.emplace_back(alignment, Share(static_cast<double>(count) / total_));
    }
  }

  std::uint64_t brief_size() { return at(brief_ = std::fmod(brief_ + kGolden, 1.0)); }

  // Draws one of several sizes whose mean must be `mean` bytes (0: any mean). Of two candidates it
  // takes the one that keeps the sum so far nearer to its target; it tries more candidates if the
  // sum is far off.
  std::uint64_t long_size(double mean) {
    long_ = std::fmod(long_ + kGolden, 1.0);
    std::uint64_t best = at(long_);
    if (mean <= 0 || sizes_.size() == 1) {
      return best;
    }
    due_ += mean;
    const int tries = std::abs(due_) > 4 * mean ? 8 : 1;
    for (int i = 0; i < tries; ++i) {
      const std::uint64_t other = at(i == 0 ? 1 - long_ : std::fmod(long_ + i * kGolden, 1.0));
      if (std::abs(due_ - static_cast<double>(other)) < std::abs(due_ - static_cast<double>(best))) {
        best = other;
      }
    }
    due_ -= static_cast<double>(best);
    return best;
  }

  // Sets the kind and the alignment of an allocation.
  void set_kind(trace::Event& event) {
    event.kind = calloc_.next() ? trace::Kind::kCalloc : trace::Kind::kMalloc;
    for (auto& [alignment, share] : aligned_) {
      if (share.next()) {
        event.kind = trace::Kind::kAligned;
        event.alignment = alignment;
      }
    }
  }

 private:
  static constexpr double kGolden = 0.6180339887498949;

  std::uint64_t at(double where) const {
    for (const auto& [up_to, size] : sizes_) {
      if (where < up_to) {
        return size;
      }
    }
    return sizes_.back().second;
  }

  std::vector<std::pair<double, std::uint64_t>> sizes_;  // cumulative share, size
  std::vector<std::pair<std::uint64_t, Share>> aligned_;
  Share calloc_;
  double total_ = 0;
  double brief_ = 0.3;
  double long_ = 0.7;
  double due_ = 0;
};

}  // namespace heapwright::model
