#include "merge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fit.h"
#include "gauges.h"
#include "layout.h"
#include "model_json.h"

namespace heapwright::model {

namespace {

// Numbers of classes for each group of threads. At kMinOwnLengths and below, the lengths of brief
// lifetimes are kept for all windows together, which makes a model several times smaller. Below
// kMinClasses a model would be too coarse.
constexpr std::size_t kMinOwnLengths = 16;
constexpr std::size_t kMinClasses = 6;
constexpr std::size_t kMaxThreadEnds = 512;  // kept at most, besides the last of each thread

template <typename What>
void join(std::vector<std::pair<What, std::uint64_t>>& to,
          const std::vector<std::pair<What, std::uint64_t>>& from) {
  for (const auto& entry : from) {
    const auto same =
        std::find_if(to.begin(), to.end(), [&](const auto& each) { return each.first == entry.first; });
    if (same == to.end()) {
      to.push_back(entry);
    } else {
      same->second += entry.second;
    }
  }
}

std::uint64_t count_of(const SizeClass& c) {
  std::uint64_t sum = 0;
  for (const auto& [size, count] : c.sizes) {
    sum += count;
  }
  return sum;
}

void join(SizeClass& to, const SizeClass& from) {
  const std::uint64_t a = count_of(to);
  const std::uint64_t b = count_of(from);
  const auto weighed = [&](std::uint64_t x, std::uint64_t y) {
    return (x * a + y * b) / std::max<std::uint64_t>(1, a + b);
  };
  to.in_order = weighed(to.in_order, from.in_order);
  to.in_reverse = weighed(to.in_reverse, from.in_reverse);
  if (to.touched == kNever || from.touched == kNever) {
    to.touched = std::min(to.touched, from.touched);
  } else {
    to.touched = weighed(to.touched, from.touched);
  }
  join(to.sizes, from.sizes);
  shorten(to.sizes);
  to.callocs += from.callocs;
  to.count_variance += from.count_variance;
  to.bytes_variance += from.bytes_variance;
  join(to.alignments, from.alignments);
  join(to.threads, from.threads);
  to.freed_own += from.freed_own;
  join(to.freed_by, from.freed_by);
  for (const Lengths& more : from.brief) {
    const auto same =
        std::find_if(to.brief.begin(), to.brief.end(), [&](const Lengths& l) { return l.bin == more.bin; });
    if (same == to.brief.end()) {
      to.brief.push_back(more);
    } else {
      same->at = (same->at * same->count + more.at * more.count) /
                 std::max<std::uint64_t>(1, same->count + more.count);
      same->count += more.count;
    }
  }
}

}  // namespace

void renumber(Model& model, const std::vector<std::uint32_t>& into) {
  const std::size_t count = *std::max_element(into.begin(), into.end()) + 1;
  std::vector<SizeClass> classes(count);
  for (std::size_t c = 0; c < into.size(); ++c) {
    if (classes[into[c]].sizes.empty()) {
      classes[into[c]] = model.classes[c];
    } else {
      join(classes[into[c]], model.classes[c]);
    }
  }
  model.classes = std::move(classes);
  for (Window& window : model.windows) {
    std::vector<ClassActivity> rows(count);
    for (std::size_t c = 0; c < into.size(); ++c) {
      rows[into[c]].add(window.rows[c]);
    }
    window.rows = std::move(rows);
    decltype(window.resizes) resizes;
    for (const auto& [classes_of, times] : window.resizes) {
      resizes[{into[classes_of.first], into[classes_of.second]}] += times;
    }
    window.resizes = std::move(resizes);
  }
  for (Scripted& entry : model.script) {
    if (entry.begin == Scripted::Begin::kFromClass) {
      entry.begin_with = into[entry.begin_with];
    }
    if (entry.end == Scripted::End::kIntoClass) {
      entry.end_with = into[entry.end_with];
    }
  }
}

namespace {

// The cost of merging each class with the next one: how much their sizes differ, times the live
// bytes that this may make wrong.
std::vector<double> costs(const Model& model) {
  std::vector<double> bytes(model.classes.size());
  for (const Window& window : model.windows) {
    for (std::size_t c = 0; c < bytes.size(); ++c) {
      bytes[c] += static_cast<double>(window.rows[c].long_bytes) +
                  1e-3 * static_cast<double>(window.rows[c].begins()) * mean_size(model.classes[c]);
    }
  }
  std::vector<double> found;
  for (std::size_t c = 0; c + 1 < bytes.size(); ++c) {
    const double apart = std::log((mean_size(model.classes[c + 1]) + 1) / (mean_size(model.classes[c]) + 1));
    found.push_back(model.classes[c].group != model.classes[c + 1].group
                        ? std::numeric_limits<double>::infinity()
                        : std::min(bytes[c], bytes[c + 1]) * std::abs(apart));
  }
  return found;
}

// From now on brief lifetimes of a class have the same mixture of lengths in every window.
void share_lengths(Model& model) {
  model.shared_lengths = true;
  for (Window& window : model.windows) {
    for (ClassActivity& row : window.rows) {
      const std::uint64_t all = row.begins() - row.long_count;
      row.brief = {};
      row.brief[kAsClass] = all;
    }
  }
}

}  // namespace

void thin(std::vector<ThreadEnd>& ends) {
  while (ends.size() > kMaxThreadEnds) {
    std::array<std::size_t, kMaxThreads> last{};
    for (std::size_t i = 0; i < ends.size(); ++i) {
      last[ends[i].thread] = i;
    }
    std::array<bool, kMaxThreads> keep{};
    std::size_t to = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const std::uint32_t thread = ends[i].thread;
      keep[thread] = !keep[thread];
      if (keep[thread] || last[thread] == i) {
        ends[to++] = ends[i];
      }
    }
    ends.resize(to);
  }
}

bool merge_until(Model& model, std::size_t bytes) {
  while (trace::to_line(to_json(model)).size() > bytes) {
    const std::size_t classes = model.classes.size();
    if (classes <= kMinClasses * (model.classes.back().group + 1)) {
      return false;
    }
    const std::size_t groups = model.classes.back().group + 1;
    if (classes <= kMinOwnLengths * groups && !model.shared_lengths) {
      share_lengths(model);
      continue;
    }
    const std::vector<double> cost = costs(model);
    std::vector<double> sorted = cost;
    std::sort(sorted.begin(), sorted.end());
    std::erase_if(sorted, [](double each) { return std::isinf(each); });
    if (sorted.empty()) {
      return false;
    }
    const double limit = sorted[std::min<std::size_t>(classes / 16, sorted.size() - 1)];
    std::vector<std::uint32_t> into(classes);
    bool merged = false;  // merge at most two classes into one at a time
    for (std::size_t c = 1; c < classes; ++c) {
      merged = !merged && cost[c - 1] <= limit;
      into[c] = into[c - 1] + (merged ? 0 : 1);
    }
    renumber(model, into);
  }
  return true;
}

}  // namespace heapwright::model
