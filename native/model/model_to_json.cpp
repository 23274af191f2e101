// Writes models as JSON. The numbers of a list stand one after the other, without brackets for its
// entries: most of a model is such lists, and brackets would double its size.
#include "model_json.h"

namespace heapwright::model {

namespace {

// The number, or -1 if it is kNever.
Json or_minus_one(std::uint64_t number) { return number == kNever ? Json(-1) : Json(number); }

// Appends numbers to a list.
template <typename... Numbers>
void append(Json& list, const Numbers&... numbers) {
  (list.push_back(numbers), ...);
}

// Appends how many bins are not 0, and then for each of them its number and its count.
template <std::size_t N>
void append_bins(Json& list, const std::array<std::uint64_t, N>& bins) {
  append(list, N - static_cast<std::size_t>(std::count(bins.begin(), bins.end(), 0)));
  for (std::size_t bin = 0; bin < N; ++bin) {
    if (bins[bin] > 0) {
      append(list, bin, bins[bin]);
    }
  }
}

template <typename What>
Json pairs(const std::vector<std::pair<What, std::uint64_t>>& entries) {
  Json list = Json::array();
  for (const auto& [what, count] : entries) {
    append(list, what, count);
  }
  return list;
}

Json class_json(const SizeClass& c, bool sampled) {
  Json brief = Json::array();
  for (const Lengths& lengths : c.brief) {
    append(brief, lengths.bin, lengths.count, lengths.at);
  }
  Json json{{"sizes", pairs(c.sizes)},           {"callocs", c.callocs},
            {"alignments", pairs(c.alignments)}, {"in_order", c.in_order},
            {"in_reverse", c.in_reverse},        {"touched", or_minus_one(c.touched)},
            {"brief", std::move(brief)},         {"threads", pairs(c.threads)},
            {"freed_own", c.freed_own},          {"freed_by", pairs(c.freed_by)}};
  if (sampled) {
    json["count_error"] = std::llround(std::sqrt(c.count_variance));
    json["bytes_error"] = std::llround(std::sqrt(c.bytes_variance));
  }
  return json;
}

Json window_json(const Model& model, const Window& w) {
  Json parts = Json::array();
  for (std::uint32_t group = 0; group <= kGroups; ++group) {
    if (const GroupActivity& p = w.parts[group]; p != GroupActivity{}) {
      append(parts, group, p.brief_bursts, p.old_bursts, p.long_at, p.old_at, p.above, p.below);
    }
  }
  Json rows = Json::array();
  for (std::size_t c = 0; c < w.rows.size(); ++c) {
    if (const ClassActivity& row = w.rows[c]; !row.empty()) {
      append(rows, c, row.long_count, model.classes[c].sizes.size() > 1 ? row.long_bytes : 0);
      append_bins(rows, row.brief);
      append_bins(rows, row.old);
    }
  }
  Json handed = Json::array();
  for (const auto& [groups, count] : w.handed) {
    append(handed, groups.first, groups.second, count.brief, count.old);
  }
  Json resizes = Json::array();
  for (const auto& [classes, count] : w.resizes) {
    append(resizes, classes.first, classes.second, count);
  }
  return {{"ticks", w.ticks},
          {"ns", w.nanoseconds},
          {"turns", w.turns},
          {"parts", std::move(parts)},
          {"rows", std::move(rows)},
          {"handed", std::move(handed)},
          {"resizes", std::move(resizes)}};
}

}  // namespace

Json to_json(const Model& model) {
  Json classes = Json::array();
  for (const SizeClass& c : model.classes) {
    classes.push_back(class_json(c, model.sample != 0));
  }
  Json windows = Json::array();
  for (const Window& w : model.windows) {
    windows.push_back(window_json(model, w));
  }
  Json script = Json::array();
  for (const Scripted& s : model.script) {
    append(script, s.tick, s.length, s.size, static_cast<unsigned>(s.begin), s.begin_with,
           static_cast<unsigned>(s.end), s.end_with, s.thread, s.end_thread, or_minus_one(s.touched));
  }
  Json ends = Json::array();
  for (const ThreadEnd& end : model.ends) {
    append(ends, end.thread, end.window, end.at);
  }
  return {{"kind", "windows"},
          {"ticks", model.ticks},
          {"ns", model.nanoseconds},
          {"events", model.events},
          {"allocations", model.allocations},
          {"peak_live_bytes", model.peak_live},
          {"script_from", model.script_from},
          {"sized_frees", model.sized_frees},
          {"threads", model.threads},
          {"classes", std::move(classes)},
          {"windows", std::move(windows)},
          {"script", std::move(script)},
          {"thread_ends", std::move(ends)}};
}

Json to_json(const RandMallocModel& model) {
  Json classes = Json::array();
  for (const MeanClass& c : model.classes) {
    classes.push_back(Json::array({c.size, c.count, c.lifetime}));
  }
  return {{"kind", "rand-malloc"},
          {"ticks", model.ticks},
          {"ns", model.nanoseconds},
          {"events", model.events},
          {"allocations", model.allocations},
          {"peak_live_bytes", model.peak_live},
          {"classes", std::move(classes)}};
}

}  // namespace heapwright::model
