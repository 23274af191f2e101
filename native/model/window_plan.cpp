#include "window_plan.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "statistics.h"

namespace heapwright::model {

namespace {

// Fewer bursts than this share of ticks: what is freed together is freed at those times.
constexpr double kBursty = 0.25;

// Brief stays that are as all of their class: by the class's lengths, as far as these fit into the window.
void spread(Row& row, const SizeClass& c, std::uint64_t ticks) {
  const std::uint64_t all = row.brief[kAsClass];
  row.brief[kAsClass] = 0;
  double sum = 0;
  for (const auto& [bin, count, at] : c.brief) {
    sum += bin_low(bin) < ticks ? static_cast<double>(count) : 0;
  }
  if (sum == 0) {
    row.brief[0] += all;
    return;
  }
  double exact = 0;
  std::uint64_t given = 0;
  for (const auto& [bin, count, at] : c.brief) {
    if (bin_low(bin) < ticks) {
      exact += static_cast<double>(all) * static_cast<double>(count) / sum;
      const auto so_far = std::min(all, whole(exact));
      row.brief[bin] += so_far - given;
      given = so_far;
    }
  }
}

// A part of 1 spread evenly, bent so that its mean is `mean` thousandths. Rising to the end for a late mean, and the mirror image
// for an early one: where blocks come and go steadily, begins of the one and ends of the other add up to a level.
double bent(double part, std::uint64_t mean) {
  const double about = std::clamp(static_cast<double>(mean) / 1000, 0.001, 0.999);
  return about >= 0.5 ? std::pow(part, 1 / about - 1) : 1 - std::pow(1 - part, 1 / (1 - about) - 1);
}

// The i-th of `count` places.
double place(std::uint64_t i, std::uint64_t count, Dice& dice) {
  return (static_cast<double>(i) + dice.uniform()) / static_cast<double>(count);
}

// Places one class and lifetime of brief stays.
void place_brief(std::vector<Begin>& begins, const Window& window, std::uint32_t kind, unsigned bin,
                 std::uint64_t mean, double stretch, Dice& dice) {
  const std::uint64_t count = window.rows[kind].brief[bin];
  const auto ticks = static_cast<double>(window.ticks);
  const bool bursty = window.brief_bursts > 0 && static_cast<double>(window.brief_bursts) < kBursty * ticks;
  const auto bursts = static_cast<double>(window.brief_bursts);
  const double low = static_cast<double>(bin_low(bin)) * (bin == 0 ? 1 : stretch);
  const std::size_t first = begins.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    const double length = low + (bin == 0 ? 0 : low * bent(place(i, count, dice), mean));
    begins.push_back(
        {0, kind, kNoClass, static_cast<std::uint32_t>(std::min(length, std::max(0.0, ticks - 1))), 0});
  }
  // Lengths and places are spread each by itself, so they are matched by chance.
  for (std::size_t i = begins.size() - first; i > 1; --i) {
    std::swap(begins[first + i - 1], begins[first + dice.below(i)]);
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    Begin& begin = begins[first + i];
    const double part = place(i, count, dice);
    const double length = static_cast<double>(begin.length) / ticks;
    // A stay much shorter than the time between two bursts is freed on its own.
    if (bursty && length * bursts > 0.125) {
      const double earliest =
          std::min(std::ceil(length * bursts), bursts);  // the first burst that can be its end
      const double burst = earliest + std::floor(part * (bursts - earliest + 1));
      begin.until = static_cast<float>(std::min(burst, bursts) / bursts);
      begin.at = static_cast<float>(std::max(0.0, static_cast<double>(begin.until) - length - 0.5 / ticks));
    } else {
      begin.at = static_cast<float>(part * std::max(0.0, 1 - length));
    }
  }
}

// Of a class's stays some are resized from others: they are chosen evenly.
void mark_resizes(std::vector<Begin>& begins, const Window& window, std::size_t classes) {
  if (window.resizes.empty()) {
    return;
  }
  struct Source {
    std::uint32_t from;
    double share;
    double sum;
  };
  std::vector<std::vector<Source>> into(classes);
  for (const auto& [pair, count] : window.resizes) {
    const auto all = static_cast<double>(window.rows[pair.second].begins());
    if (all > 0) {
      into[pair.second].push_back({pair.first, static_cast<double>(count) / all, 0});
    }
  }
  for (Begin& begin : begins) {
    Source* best = nullptr;
    double left = 1;  // share that is not resized
    for (Source& source : into[begin.kind]) {
      source.sum += source.share;
      left -= source.share;
      best = source.sum >= 0.5 && (best == nullptr || source.sum > best->sum) ? &source : best;
    }
    if (best == nullptr && left < 1e-9 && !into[begin.kind].empty()) {
      best = &*std::max_element(into[begin.kind].begin(), into[begin.kind].end(),
                                [](const Source& a, const Source& b) { return a.sum < b.sum; });
    }
    if (best != nullptr) {
      best->sum -= 1;
      begin.from = best->from;
    }
  }
}

}  // namespace

WindowPlan plan_window(const Window& window, const std::vector<SizeClass>& classes, double stretch,
                       Dice& dice) {
  WindowPlan plan;
  const auto ticks = static_cast<double>(window.ticks);
  const bool bursty = window.old_bursts > 0 && static_cast<double>(window.old_bursts) < kBursty * ticks;
  const auto bursts = static_cast<double>(window.old_bursts);
  for (std::uint32_t kind = 0; kind < window.rows.size(); ++kind) {
    const Row& row = window.rows[kind];
    for (std::uint64_t i = 0; i < row.long_count; ++i) {
      const double at = bent(place(i, row.long_count, dice), window.long_at);
      plan.begins.push_back({static_cast<float>(at), kind, kNoClass, kLong, 0});
    }
    for (const Lengths& lengths : classes[kind].brief) {
      place_brief(plan.begins, window, kind, lengths.bin, lengths.at, stretch, dice);
    }
    const std::uint64_t olds = row.old_ends();
    for (std::uint64_t i = 0; i < olds; ++i) {
      double at = bent(place(i, olds, dice), window.old_at);
      if (bursty) {
        at = window.old_bursts == 1 ? static_cast<double>(window.old_at) / 1000
                                    : (std::floor(at * bursts) + 0.5) / bursts;
      }
      plan.ends.push_back({static_cast<float>(at), kind});
    }
  }
  std::sort(plan.begins.begin(), plan.begins.end(), [](const Begin& a, const Begin& b) {
    return std::tie(a.at, a.kind, a.length, a.until) < std::tie(b.at, b.kind, b.length, b.until);
  });
  std::sort(plan.ends.begin(), plan.ends.end(),
            [](const OldEnd& a, const OldEnd& b) { return std::tie(a.at, a.kind) < std::tie(b.at, b.kind); });
  mark_resizes(plan.begins, window, window.rows.size());
  return plan;
}

void spread_lengths(Window& window, const std::vector<SizeClass>& classes, double stretch) {
  const auto ticks = static_cast<std::uint64_t>(static_cast<double>(window.ticks) / stretch);
  for (std::size_t c = 0; c < window.rows.size(); ++c) {
    if (window.rows[c].brief[kAsClass] > 0) {
      spread(window.rows[c], classes[c], ticks);
    }
  }
}

}  // namespace heapwright::model
