#include "model.h"

#include <numeric>

#include "fit.h"
#include "json.h"

namespace heapwright::model {

bool Row::empty() const { return begins() == 0 && old_ends() == 0; }

std::uint64_t Row::begins() const { return std::accumulate(brief.begin(), brief.end(), long_count); }

std::uint64_t Row::old_ends() const { return std::accumulate(old.begin(), old.end(), std::uint64_t{0}); }

void Row::add(const Row& other) {
  long_count += other.long_count;
  long_bytes += other.long_bytes;
  for (unsigned i = 0; i < kLifeBins; ++i) {
    brief[i] += other.brief[i];
  }
  for (unsigned i = 0; i < kAgeBins; ++i) {
    old[i] += other.old[i];
  }
}

namespace {

template <std::size_t N>
void sparse(Json& json, const std::array<std::uint64_t, N>& bins) {
  std::size_t used = 0;
  for (const std::uint64_t count : bins) {
    used += count > 0 ? 1 : 0;
  }
  json.value(used);
  for (std::size_t bin = 0; bin < N; ++bin) {
    if (bins[bin] > 0) {
      json.value(bin).value(bins[bin]);
    }
  }
}

void pairs(Json& json, const char* name, const std::vector<std::pair<std::uint64_t, std::uint64_t>>& list) {
  json.key(name).open('[');
  for (const auto& [what, count] : list) {
    json.value(what).value(count);
  }
  json.close(']');
}

void threads(Json& json, const char* name, const std::vector<std::pair<std::uint32_t, std::uint64_t>>& list) {
  json.key(name).open('[');
  for (const auto& [thread, count] : list) {
    json.value(thread).value(count);
  }
  json.close(']');
}

void size_class(Json& json, const SizeClass& c) {
  json.open('{');
  pairs(json, "sizes", c.sizes);
  json.field("callocs", c.callocs);
  pairs(json, "alignments", c.alignments);
  json.field("in_order", c.in_order).field("in_reverse", c.in_reverse);
  json.field("touched", c.touched == kNever ? std::int64_t{-1} : static_cast<std::int64_t>(c.touched));
  json.key("brief").open('[');
  for (const Lengths& lengths : c.brief) {
    json.value(lengths.bin).value(lengths.count).value(lengths.at);
  }
  json.close(']');
  threads(json, "threads", c.threads);
  json.field("freed_own", c.freed_own);
  threads(json, "freed_by", c.freed_by);
  json.close('}');
}

void window(Json& json, const Model& model, const Window& w) {
  json.open('{').field("ticks", w.ticks).field("ns", w.nanoseconds).field("turns", w.turns);
  json.key("parts").open('[');
  for (std::uint32_t group = 0; group <= kGroups; ++group) {
    if (const Part& p = w.parts[group]; p != Part{}) {
      json.value(group).value(p.brief_bursts).value(p.old_bursts);
      json.value(p.long_at).value(p.old_at).value(p.above).value(p.below);
    }
  }
  json.close(']');
  json.key("rows").open('[');
  for (std::size_t c = 0; c < w.rows.size(); ++c) {
    if (const Row& row = w.rows[c]; !row.empty()) {
      json.value(c).value(row.long_count);
      json.value(model.classes[c].sizes.size() > 1 ? row.long_bytes : 0);
      sparse(json, row.brief);
      sparse(json, row.old);
    }
  }
  json.close(']').key("handed").open('[');
  for (const auto& [groups, handed] : w.handed) {
    json.value(groups.first).value(groups.second).value(handed.brief).value(handed.old);
  }
  json.close(']').key("resizes").open('[');
  for (const auto& [classes, count] : w.resizes) {
    json.value(classes.first).value(classes.second).value(count);
  }
  json.close(']').close('}');
}

void scripted(Json& json, const Scripted& s) {
  json.value(s.tick).value(s.length).value(s.size);
  json.value(static_cast<unsigned>(s.begin))
      .value(s.begin_with)
      .value(static_cast<unsigned>(s.end))
      .value(s.end_with);
  json.value(s.thread).value(s.end_thread);
  json.value(s.touched == kNever ? std::int64_t{-1} : static_cast<std::int64_t>(s.touched));
}

}  // namespace

std::string to_json(const Model& model) {
  Json json;
  json.open('{').field("kind", "windows").field("ticks", model.ticks).field("ns", model.nanoseconds);
  json.field("events", model.events).field("allocations", model.allocations);
  json.field("peak_live_bytes", model.peak_live).field("script_from", model.script_from);
  json.field("sized_frees", model.sized_frees).field("threads", model.threads);
  json.key("classes").open('[');
  for (const SizeClass& c : model.classes) {
    size_class(json, c);
  }
  json.close(']').key("windows").open('[');
  for (const Window& w : model.windows) {
    window(json, model, w);
  }
  json.close(']').key("script").open('[');
  for (const Scripted& s : model.script) {
    scripted(json, s);
  }
  json.close(']').key("thread_ends").open('[');
  for (const ThreadEnd& end : model.ends) {
    json.value(end.thread).value(end.window).value(end.at);
  }
  json.close(']').close('}');
  return json.text();
}

}  // namespace heapwright::model
