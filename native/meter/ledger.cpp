// Implements the rules of ledger.h.
#include "ledger.h"

#include <algorithm>

namespace heapwright::meter {
namespace {

void raise(Memory& peak, const Memory& value) {
  peak.vm = std::max(peak.vm, value.vm);
  peak.rss = std::max(peak.rss, value.rss);
  peak.heap = std::max(peak.heap, value.heap);
  peak.huge = std::max(peak.huge, value.huge);
}

// total = total - before + after, which never goes below zero because total includes before.
void replace(Memory& total, const Memory& before, const Memory& after) {
  total.vm = total.vm - before.vm + after.vm;
  total.rss = total.rss - before.rss + after.rss;
  total.anonymous = total.anonymous - before.anonymous + after.anonymous;
  total.heap = total.heap - before.heap + after.heap;
}

}  // namespace

void Ledger::raise_peaks() {
  raise(peak_, total_);
  raise(recent_, total_);
}

// The total had this size until now, since the last such call.
void Ledger::count_time(std::uint64_t rss, double time) {
  durations_.add(rss, time - totalled_);
  totalled_ = std::max(totalled_, time);
}

void Ledger::sample(pid_t process, double time, const Memory& memory) {
  ++samples_;
  const auto [at, fresh] = entries_.try_emplace(process);
  max_live_ = std::max(max_live_, entries_.size());
  max_anonymous_ = std::max(max_anonymous_, memory.anonymous);
  Entry& entry = at->second;
  if (fresh) {
    changed_ = time;
  } else {
    const double span = std::max(0.0, time - entry.time);
    const auto before = static_cast<double>(entry.last.rss);
    const auto after = static_cast<double>(memory.rss);
    area_rss_ += span * (after >= before ? (before + after) / 2 : after);
    area_heap_ += span * static_cast<double>(memory.heap);
    if (!entry.releasing.empty() && memory.rss < entry.last.rss) {
      returned_ += entry.last.rss - memory.rss;
    }
  }
  replace(total_, entry.last, memory);
  entry.last = memory;
  entry.time = time;
  raise_peaks();
  count_time(total_.rss, time);
}

void Ledger::begin_release(pid_t process, pid_t thread) {
  if (const auto at = entries_.find(process); at != entries_.end()) {
    at->second.releasing.insert(thread);
  }
}

void Ledger::end_release(pid_t process, pid_t thread) {
  if (const auto at = entries_.find(process); at != entries_.end()) {
    at->second.releasing.erase(thread);
  }
}

void Ledger::process_ended(pid_t process, double time) {
  const auto at = entries_.find(process);
  if (at == entries_.end()) {
    return;
  }
  const Entry& entry = at->second;
  count_time(total_.rss, time);
  if (process == root_) {
    final_rss_ = total_.rss;
  }
  const double span = std::max(0.0, time - entry.time);
  area_rss_ += span * static_cast<double>(entry.last.rss);
  area_heap_ += span * static_cast<double>(entry.last.heap);
  replace(total_, entry.last, Memory{});
  entries_.erase(at);
  changed_ = time;
}

void Ledger::set_huge(std::uint64_t bytes) {
  total_.huge = bytes;
  raise_peaks();
}

void Ledger::tick(double time) {
  if (series_limit_ == 0) {
    return;
  }
  if (series_.empty() || ticks_in_last_ >= ticks_in_point_) {
    const double last = series_.empty() ? 0 : series_.back().time;
    // The last point is that of the run's end, which may lie before the last tick.
    series_.push_back({.time = std::max(time - start_, last), .memory = recent_});
    ticks_in_last_ = 0;
  } else {
    raise(series_.back().memory, recent_);
  }
  ++ticks_in_last_;
  recent_ = total_;
  recent_.huge = std::min(total_.huge, total_.rss);  // a process may have ended since the last reading
  if (series_.size() > series_limit_) {  // halve: of two points keep the earlier time and the larger figures
    ticks_in_last_ += series_.size() % 2 == 0 ? ticks_in_point_ : 0;
    ticks_in_point_ *= 2;
    std::size_t to = 0;
    for (std::size_t from = 0; from < series_.size(); from += 2, ++to) {
      SeriesPoint point = series_[from];
      if (from + 1 < series_.size()) {
        raise(point.memory, series_[from + 1].memory);
      }
      series_[to] = point;
    }
    series_.resize(to);
  }
}

}  // namespace heapwright::meter
