#include "window_schedule.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "statistics.h"

namespace heapwright::model {

namespace {

// If there are fewer bursts than this share of the ticks, frees are scheduled at the times of
// bursts.
constexpr double kBursty = 0.25;

// Distributes the brief lifetimes of the bin kAsClass over bins, by the lengths of the class that
// fit into the window.
void spread(ClassActivity& row, const SizeClass& c, std::uint64_t ticks) {
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

// Bends an evenly spread position from 0 to 1 so that the mean is `mean` thousandths. The density
// rises to the end for a late mean, and is the mirror image for an early one. So if blocks come and
// go steadily, starts and ends cancel at all times.
double bent(double part, std::uint64_t mean) {
  const double about = std::clamp(static_cast<double>(mean) / 1000, 0.001, 0.999);
  return about >= 0.5 ? std::pow(part, 1 / about - 1) : 1 - std::pow(1 - part, 1 / (1 - about) - 1);
}

// A position in the i-th of `count` equal parts of the window.
double position(std::uint64_t i, std::uint64_t count, Rng& rng) {
  return (static_cast<double>(i) + rng.uniform()) / static_cast<double>(count);
}

// Deals a sequence out evenly to sharers, in proportion to the share of each. If the shares add up
// to less than 1, no sharer gets the other items.
class Shares {
 public:
  void add(std::uint32_t sharer, double share) { all_.push_back({sharer, share, 0}); }
  bool empty() const { return all_.empty(); }
  // Returns the sharer that gets the next item, or `no_sharer`.
  std::uint32_t next(std::uint32_t no_sharer) {
    Sharer* best = nullptr;
    double left = 1;
    for (Sharer& each : all_) {
      each.sum += each.share;
      left -= each.share;
      best = each.sum >= 0.5 && (best == nullptr || each.sum > best->sum) ? &each : best;
    }
    if (best == nullptr && left < 1e-9 && !all_.empty()) {
      best = &*std::max_element(all_.begin(), all_.end(),
                                [](const Sharer& a, const Sharer& b) { return a.sum < b.sum; });
    }
    if (best == nullptr) {
      return no_sharer;
    }
    best->sum -= 1;
    return best->number;
  }

 private:
  struct Sharer {
    std::uint32_t number;
    double share;
    double sum;
  };
  std::vector<Sharer> all_;
};

// Schedules the brief lifetimes of one class and one bin of lengths.
//   begins          receives them
//   activity        the activity of the group in the window
//   count           of lifetimes
//   ticks           of the group in the window
//   size_class      their class
//   bin, mean       their bin, and the mean length in thousandths of it
//   stretch         factor of lengths
//   rng             draws
void place_brief(std::vector<ScheduledBegin>& begins, const GroupActivity& activity, std::uint64_t count,
                 double ticks, std::uint32_t size_class, unsigned bin, std::uint64_t mean, double stretch,
                 Rng& rng) {
  const auto bursts = static_cast<double>(activity.brief_bursts);
  const bool bursty = bursts > 0 && bursts < kBursty * ticks;
  const double low = static_cast<double>(bin_low(bin)) * (bin == 0 ? 1 : stretch);
  const std::size_t first = begins.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    const double length = low + (bin == 0 ? 0 : low * bent(position(i, count, rng), mean));
    begins.push_back({0, size_class, kNoClass,
                      static_cast<std::uint32_t>(std::min(length, std::max(0.0, ticks - 1))), 0, 0});
  }
  // Lengths and positions are spread independently, so match them at random.
  for (std::size_t i = begins.size() - first; i > 1; --i) {
    std::swap(begins[first + i - 1], begins[first + rng.below(i)]);
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    ScheduledBegin& begin = begins[first + i];
    const double part = position(i, count, rng);
    const double length = static_cast<double>(begin.length) / ticks;
    // A lifetime much shorter than the time between two bursts ends by itself.
    if (bursty && length * bursts > 0.125) {
      const double earliest =
          std::min(std::ceil(length * bursts), bursts);  // the first burst at which it can end
      const double burst = earliest + std::floor(part * (bursts - earliest + 1));
      begin.until = static_cast<float>(std::min(burst, bursts) / bursts);
      begin.at = static_cast<float>(std::max(0.0, static_cast<double>(begin.until) - length - 0.5 / ticks));
    } else {
      begin.at = static_cast<float>(part * std::max(0.0, 1 - length));
    }
  }
}

// Chooses evenly which lifetimes of a class begin by realloc.
void mark_resizes(WindowSchedule& schedule, const Window& window) {
  if (window.resizes.empty()) {
    return;
  }
  std::vector<Shares> into(window.rows.size());
  for (const auto& [pair, count] : window.resizes) {
    const auto all = static_cast<double>(window.rows[pair.second].begins());
    if (all > 0) {
      into[pair.second].add(pair.first, static_cast<double>(count) / all);
    }
  }
  for (GroupSchedule& group : schedule) {
    for (ScheduledBegin& begin : group.begins) {
      begin.from = into[begin.size_class].next(kNoClass);
    }
  }
}

// Numbers of lifetimes of each group in a window.
struct Sums {
  std::array<std::uint64_t, kGroups> begins{};
  std::array<std::uint64_t, kGroups> briefs{};
  std::array<std::uint64_t, kGroups> olds{};
};

Sums sums_of(const Window& window, const std::vector<SizeClass>& classes) {
  Sums sums;
  for (std::size_t size_class = 0; size_class < window.rows.size(); ++size_class) {
    const ClassActivity& row = window.rows[size_class];
    const std::uint32_t group = classes[size_class].group;
    sums.begins[group] += row.begins();
    sums.briefs[group] += row.begins() - row.long_count;
    sums.olds[group] += row.old_ends();
  }
  return sums;
}

double share_of(std::uint64_t some, std::uint64_t all) {
  return std::min(1.0, static_cast<double>(some) / static_cast<double>(std::max<std::uint64_t>(1, all)));
}

}  // namespace

WindowSchedule schedule_window(const Window& window, const std::vector<SizeClass>& classes, double stretch,
                               Rng& rng) {
  WindowSchedule schedule;
  const Sums sums = sums_of(window, classes);
  std::array<std::uint64_t, kGroups> frees{};
  std::array<Shares, kGroups> brief_by;
  std::array<Shares, kGroups> old_by;
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    frees[group] += sums.briefs[group] + sums.olds[group];
  }
  for (const auto& [pair, handed] : window.handed) {
    const auto [from, by] = pair;
    brief_by[from].add(by, share_of(handed.brief, sums.briefs[from]));
    old_by[from].add(by, share_of(handed.old, sums.olds[from]));
    const std::uint64_t all = handed.brief + handed.old;
    frees[from] -= std::min(frees[from], all);
    frees[by] += all;
  }
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    schedule[group].timed = has_clock(sums.begins[group], frees[group]);
  }
  for (std::uint32_t size_class = 0; size_class < window.rows.size(); ++size_class) {
    const ClassActivity& row = window.rows[size_class];
    const std::uint32_t group = classes[size_class].group;
    const GroupActivity& part = window.parts[group];
    std::vector<ScheduledBegin>& begins = schedule[group].begins;
    for (std::uint64_t i = 0; i < row.long_count; ++i) {
      const double at = bent(position(i, row.long_count, rng), part.long_at);
      begins.push_back({static_cast<float>(at), size_class, kNoClass, kLong, 0, group});
    }
    for (const Lengths& lengths : classes[size_class].brief) {
      place_brief(begins, part, row.brief[lengths.bin], static_cast<double>(sums.begins[group]), size_class,
                  lengths.bin, lengths.at, stretch, rng);
    }
    const std::uint64_t olds = row.old_ends();
    for (std::uint64_t i = 0; i < olds; ++i) {
      const std::uint32_t by = old_by[group].next(group);
      const GroupActivity& freer = window.parts[by];
      const auto bursts = static_cast<double>(freer.old_bursts);
      const auto ticks = static_cast<double>(schedule[by].timed ? sums.begins[by] : window.ticks);
      double at = bent(position(i, olds, rng), freer.old_at);
      if (bursts > 0 && bursts < kBursty * ticks) {
        at = freer.old_bursts == 1 ? static_cast<double>(freer.old_at) / 1000
                                   : (std::floor(at * bursts) + 0.5) / bursts;
      }
      schedule[by].ends.push_back({static_cast<float>(at), size_class});
    }
  }
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    std::sort(schedule[group].begins.begin(), schedule[group].begins.end(),
              [](const ScheduledBegin& a, const ScheduledBegin& b) {
                return std::tie(a.at, a.size_class, a.length, a.until) <
                       std::tie(b.at, b.size_class, b.length, b.until);
              });
    std::sort(schedule[group].ends.begin(), schedule[group].ends.end(),
              [](const ScheduledEnd& a, const ScheduledEnd& b) {
                return std::tie(a.at, a.size_class) < std::tie(b.at, b.size_class);
              });
    for (ScheduledBegin& begin : schedule[group].begins) {
      if (begin.length != kLong) {
        begin.freed_by = brief_by[group].next(group);
      }
    }
  }
  mark_resizes(schedule, window);
  return schedule;
}

void spread_lengths(Window& window, const std::vector<SizeClass>& classes, double stretch) {
  const Sums sums = sums_of(window, classes);
  for (std::size_t c = 0; c < window.rows.size(); ++c) {
    if (window.rows[c].brief[kAsClass] > 0) {
      const auto ticks = static_cast<double>(sums.begins[classes[c].group]) / stretch;
      spread(window.rows[c], classes[c], static_cast<std::uint64_t>(ticks));
    }
  }
}

}  // namespace heapwright::model
