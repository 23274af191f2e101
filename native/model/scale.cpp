#include "scale.h"

#include <algorithm>
#include <cmath>

namespace heapwright::model {

namespace {

constexpr double kMaxTicks = 1 << 30;  // of one window

// Rounds a sequence of numbers so that no sum of its first numbers is off by more than 0.5.
class Rounded {
 public:
  std::uint64_t next(double value) {
    exact_ += value;
    const double next = std::max(given_, std::floor(exact_ + 0.5));
    const double step = next - given_;
    given_ = next;
    return static_cast<std::uint64_t>(step);
  }

 private:
  double exact_ = 0;
  double given_ = 0;
};

struct Carried {
  Rounded longs;
  Rounded olds;
  std::array<Rounded, kLifeBins> brief;
};

// Divides `total` in the proportions of `parts`.
void share(std::array<std::uint64_t, kAgeBins>& parts, std::uint64_t total) {
  std::uint64_t sum = 0;
  for (const std::uint64_t part : parts) {
    sum += part;
  }
  if (sum == 0) {
    parts[0] = total;
    return;
  }
  Rounded rounded;
  for (std::uint64_t& part : parts) {
    part = rounded.next(static_cast<double>(part) / static_cast<double>(sum) * static_cast<double>(total));
  }
}

void scale_row(ClassActivity& row, Carried& carried, double heap, double time) {
  const auto longs = static_cast<double>(row.long_count);
  const auto olds = static_cast<double>(row.old_ends());
  const double more = (time - 1) * std::min(longs, olds);
  const std::uint64_t count = carried.longs.next((longs + more) * heap);
  if (row.long_count > 0) {
    row.long_bytes =
        static_cast<std::uint64_t>(static_cast<double>(row.long_bytes) / longs * static_cast<double>(count));
  }
  row.long_count = count;
  share(row.old, carried.olds.next((olds + more) * heap));
  for (unsigned bin = 0; bin < kLifeBins; ++bin) {
    row.brief[bin] = carried.brief[bin].next(static_cast<double>(row.brief[bin]) * time * heap);
  }
}

// The ticks at which the windows begin, before and after; the last ones are the end of the model.
struct Begins {
  std::vector<std::uint64_t> old_ticks{0};
  std::vector<std::uint64_t> new_ticks{0};

  // The new tick of an old one: the same share of its window is over.
  [[nodiscard]] std::uint64_t moved(std::uint64_t tick) const {
    const auto after = static_cast<std::size_t>(std::upper_bound(old_ticks.begin(), old_ticks.end(), tick) -
                                                old_ticks.begin());
    if (after == old_ticks.size()) {
      return new_ticks.back();
    }
    const double part = static_cast<double>(tick - old_ticks[after - 1]) /
                        static_cast<double>(old_ticks[after] - old_ticks[after - 1]);
    const std::uint64_t room = new_ticks[after] - new_ticks[after - 1];
    return new_ticks[after - 1] + static_cast<std::uint64_t>(part * static_cast<double>(room));
  }
};

// Totals of a window's rows, counted after scaling.
struct ScaledRows {
  double begins = 0;
  std::array<double, kGroups> more_olds{};  // by group: ends of old objects, times those before
};

ScaledRows scale_rows(Window& window, const std::vector<SizeClass>& classes, std::vector<Carried>& carried,
                      double heap, double time) {
  ScaledRows scaled;
  std::array<double, kGroups> olds_before{};
  for (std::size_t c = 0; c < window.rows.size(); ++c) {
    const std::uint32_t group = classes[c].group;
    olds_before[group] += static_cast<double>(window.rows[c].old_ends());
    scale_row(window.rows[c], carried[c], heap, time);
    scaled.more_olds[group] += static_cast<double>(window.rows[c].old_ends());
    scaled.begins += static_cast<double>(window.rows[c].begins());
  }
  for (std::uint32_t group = 0; group < kGroups; ++group) {
    scaled.more_olds[group] /= std::max(1.0, olds_before[group]);
  }
  return scaled;
}

// Scales the time of a window, and what its threads do.
void scale_activity(Window& window, const ScaledRows& rows, double heap, double time) {
  window.nanoseconds = static_cast<std::uint64_t>(static_cast<double>(window.nanoseconds) * heap * time);
  window.turns = whole(static_cast<double>(window.turns) * heap * time);
  for (GroupActivity& part : window.parts) {
    part.above = whole(static_cast<double>(part.above) * heap);
    part.below = whole(static_cast<double>(part.below) * heap);
  }
  for (auto& [groups, handed] : window.handed) {
    handed.brief = whole(static_cast<double>(handed.brief) * heap * time);
    handed.old = whole(static_cast<double>(handed.old) * rows.more_olds[groups.first]);
  }
}

// Moves the script's objects to their new ticks, at most one a tick, and scales their sizes.
void scale_script(std::vector<Scripted>& script, const Begins& begins, double heap) {
  std::uint64_t next = 0;
  for (Scripted& s : script) {
    const std::uint64_t end = begins.moved(s.tick + 1 + s.length);
    s.tick = std::max(next, begins.moved(s.tick));
    next = s.tick + 1;
    s.length = end > next ? end - next : 0;
    s.size = std::max<std::uint64_t>(s.size > 0 ? 1 : 0,
                                     static_cast<std::uint64_t>(static_cast<double>(s.size) * heap));
    s.touched =
        s.touched == kNever ? kNever : static_cast<std::uint64_t>(static_cast<double>(s.touched) * heap);
  }
}

}  // namespace

bool scale(Model& model, double heap, double time) {
  if (heap == 1 && time == 1) {
    return true;
  }
  model.stretch *= heap;
  std::vector<Carried> carried(model.classes.size());
  std::map<std::pair<std::uint32_t, std::uint32_t>, Rounded> resizes;
  Begins begins;
  std::size_t at = 0;  // index in the script
  for (Window& window : model.windows) {
    begins.old_ticks.push_back(begins.old_ticks.back() + window.ticks);
    const auto first = at;
    while (at < model.script.size() && model.script[at].tick < begins.old_ticks.back()) {
      ++at;
    }
    const ScaledRows rows = scale_rows(window, model.classes, carried, heap, time);
    const double ticks = rows.begins + static_cast<double>(at - first);
    if (ticks > kMaxTicks) {
      return false;
    }
    window.ticks = static_cast<std::uint64_t>(ticks);
    scale_activity(window, rows, heap, time);
    for (auto& [classes, count] : window.resizes) {
      count = resizes[classes].next(static_cast<double>(count) * heap * time);
    }
    begins.new_ticks.push_back(begins.new_ticks.back() + window.ticks);
  }
  scale_script(model.script, begins, heap);
  model.ticks = begins.new_ticks.back();
  model.nanoseconds = static_cast<std::uint64_t>(static_cast<double>(model.nanoseconds) * heap * time);
  return true;
}

bool scale(RandMallocModel& model, double heap, double time) {
  for (MeanClass& c : model.classes) {
    c.count = whole(static_cast<double>(c.count) * heap * time);
    c.lifetime = whole(static_cast<double>(c.lifetime) * heap);
  }
  model.nanoseconds = static_cast<std::uint64_t>(static_cast<double>(model.nanoseconds) * heap * time);
  return true;
}

}  // namespace heapwright::model
