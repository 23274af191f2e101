#include "layout.h"

#include <algorithm>
#include <functional>
#include <set>

namespace heapwright::model {

using trace::Event;

namespace {

// At most so many windows begin at bursts of frees (and not more than a third of all), and so many
// at ends of threads. If more threads end, no window begins at the end of one.
constexpr std::size_t kBursts = 64;
// Sizes with a class of their own: so many by the bytes requested in them, and so many by the
// number of requests.
constexpr std::size_t kExactBySize = 40;
constexpr std::size_t kSizesOfClass = 12;
constexpr unsigned kBins = 256;

// Four bins for each doubling of the size.
unsigned quarter_bin(std::uint64_t size) {
  const unsigned octave = log_bin(size);
  return octave < 3 ? static_cast<unsigned>(size)
                    : 4 * octave + static_cast<unsigned>((size >> (octave - 3)) & 3);
}

// Merges the entries i and i + 1 of a sorted list at their mean.
void join(std::vector<std::pair<std::uint64_t, std::uint64_t>>& sizes, std::size_t i) {
  const auto [a, n] = sizes[i];
  const auto [b, m] = sizes[i + 1];
  const double mean =
      (static_cast<double>(a) * static_cast<double>(n) + static_cast<double>(b) * static_cast<double>(m)) /
      static_cast<double>(n + m);
  sizes[i] = {whole(mean), n + m};
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
}

}  // namespace

void shorten(std::vector<std::pair<std::uint64_t, std::uint64_t>>& sizes) {
  std::sort(sizes.begin(), sizes.end());
  // Halve long lists first, so that the quadratic search for the best pair below stays short.
  while (sizes.size() > 256) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> half;
    for (std::size_t i = 0; i < sizes.size(); i += 2) {
      half.push_back(sizes[i]);
      if (i + 1 < sizes.size()) {
        half.push_back(sizes[i + 1]);
        join(half, half.size() - 2);
      }
    }
    sizes = std::move(half);
  }
  while (sizes.size() > kSizesOfClass) {
    std::size_t best = 0;
    double best_cost = 0;
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
      const double rarer = static_cast<double>(std::min(sizes[i].second, sizes[i + 1].second));
      const double cost = rarer * static_cast<double>(sizes[i + 1].first - sizes[i].first);
      if (i == 0 || cost < best_cost) {
        best = i;
        best_cost = cost;
      }
    }
    join(sizes, best);
  }
}

double mean_size(const SizeClass& c) {
  double bytes = 0;
  double count = 0;
  for (const auto& [size, times] : c.sizes) {
    bytes += static_cast<double>(size) * static_cast<double>(times);
    count += static_cast<double>(times);
  }
  return count == 0 ? 0 : bytes / count;
}

Layout::Layout(trace::EventSource& source, const FitOptions& options) : binned_(kBins, -1) {
  Event event;
  std::uint64_t before = 0;  // live bytes after the last tick
  while (source.next(event)) {
    const std::uint64_t tick = statistics_.ticks;
    if (is_allocation(event.kind) || event.kind == trace::Kind::kRealloc) {
      note_burst(tick, before);
    }
    if (event.kind == trace::Kind::kThreadEnd && thread_ends_.size() <= kBursts) {
      thread_ends_.insert(tick);
    }
    statistics_.add(event);
    if (statistics_.ticks != tick) {
      before = statistics_.live();
    }
  }
  cut(options);
  divide(options);
}

void Layout::note_burst(std::uint64_t tick, std::uint64_t live_before) {
  const std::uint64_t live = statistics_.live();
  const std::uint64_t freed = live_before > live ? live_before - live : 0;
  if (freed < 4096 || freed < statistics_.peak_live / 100) {
    return;
  }
  bursts_.emplace_back(freed, tick);
  std::push_heap(bursts_.begin(), bursts_.end(), std::greater<>());
  if (bursts_.size() > kBursts) {
    std::pop_heap(bursts_.begin(), bursts_.end(), std::greater<>());
    bursts_.pop_back();
  }
}

void Layout::cut(const FitOptions& options) {
  const std::uint64_t all = ticks();
  const std::uint64_t count = std::max<std::uint64_t>(1, std::min(options.windows, all));
  std::set<std::uint64_t> borders{0, all, std::min(statistics_.peak_tick, all)};
  for (std::uint64_t i = 1; i < count; ++i) {
    borders.insert(all / count * i + all % count * i / count);
  }
  std::sort(bursts_.begin(), bursts_.end(), std::greater<>());
  bursts_.resize(std::min<std::size_t>(bursts_.size(), options.windows / 3));
  if (thread_ends_.size() <= std::min<std::size_t>(kBursts, options.windows)) {
    borders.insert(thread_ends_.begin(), thread_ends_.end());
  }
  std::set<std::uint64_t> bursts{all};  // frees after the last tick get a window of their own too
  for (const auto& [bytes, tick] : bursts_) {
    if (bytes >= statistics_.peak_live / 100) {
      bursts.insert(tick);
      borders.insert(tick);
    }
  }
  for (auto border = borders.begin(); border != borders.end(); ++border) {
    if (bursts.contains(*border)) {
      ranges_.push_back({*border, *border});
    }
    if (const auto end = std::next(border); end != borders.end()) {
      ranges_.push_back({*border, *end});
    }
  }
}

void Layout::divide(const FitOptions& options) {
  auto sizes = statistics_.top_sizes(~std::size_t{0});  // most frequent first
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  std::uint64_t scripted = 0;
  script_from_ = statistics_.largest + 1;
  for (const auto& [size, count] : sizes) {
    scripted += count;
    if (scripted > options.script) {
      break;
    }
    script_from_ = size;
  }
  std::erase_if(sizes, [this](const auto& each) { return each.first >= script_from_; });

  std::set<std::uint64_t> own_class;
  const auto take = [&](const auto& weight) {
    std::sort(sizes.begin(), sizes.end(),
              [&](const auto& a, const auto& b) { return weight(a) > weight(b); });
    for (std::size_t i = 0; i < std::min(kExactBySize, sizes.size()); ++i) {
      own_class.insert(sizes[i].first);
    }
  };
  take([](const auto& s) { return s.second; });
  take([](const auto& s) { return s.first * s.second; });
  std::vector<SizeClass> bins(kBins);
  for (const auto& each : sizes) {
    if (own_class.contains(each.first)) {
      classes_.emplace_back().sizes.push_back(each);
    } else {
      bins[std::min(quarter_bin(each.first), kBins - 1)].sizes.push_back(each);
    }
  }
  for (SizeClass& bin : bins) {
    if (!bin.sizes.empty()) {
      classes_.push_back(std::move(bin));
    }
  }
  std::sort(classes_.begin(), classes_.end(),
            [](const SizeClass& a, const SizeClass& b) { return mean_size(a) < mean_size(b); });
  for (std::uint32_t c = 0; c < classes_.size(); ++c) {
    const std::uint64_t first = classes_[c].sizes.front().first;
    if (classes_[c].sizes.size() == 1 && own_class.contains(first)) {
      exact_.emplace(first, c);
    } else {
      binned_[std::min(quarter_bin(first), kBins - 1)] = static_cast<std::int32_t>(c);
    }
    shorten(classes_[c].sizes);
  }
  // All lifetimes are in the script, but a model needs at least one class.
  if (classes_.empty()) {
    classes_.emplace_back().sizes.emplace_back(kGranule, 1);
  }
}

std::uint32_t Layout::class_of(std::uint64_t size) const {
  if (const auto known = exact_.find(size); known != exact_.end()) {
    return known->second;
  }
  const unsigned wanted = std::min(quarter_bin(size), kBins - 1);
  for (unsigned bin = wanted + 1; bin-- > 0;) {
    if (binned_[bin] >= 0) {
      return static_cast<std::uint32_t>(binned_[bin]);
    }
  }
  return static_cast<std::uint32_t>(classes_.size() - 1);
}

}  // namespace heapwright::model
