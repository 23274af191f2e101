#include "statistics_json.h"

#include <algorithm>

#include "json.h"

namespace heapwright::model {

using trace::Kind;

namespace {

double seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

void histogram(Json& json, std::string_view name, const Histogram& bins, double unit) {
  json.key(name).open('[');
  for (unsigned bin = 0; bin < bins.size(); ++bin) {
    if (bins[bin].count == 0) {
      continue;
    }
    json.open('{');
    json.field("from", static_cast<double>(bin_low(bin)) * unit);
    json.field("to",
               bin == 64 ? 18446744073709551616.0 * unit : static_cast<double>(bin_low(bin + 1)) * unit);
    json.field("count", bins[bin].count);
    json.field("bytes", bins[bin].bytes);
    json.close('}');
  }
  json.close(']');
}

void kinds(Json& json, Statistics& s) {
  const std::array<std::pair<const char*, Kind>, 9> names{{
      {"mallocs", Kind::kMalloc},
      {"callocs", Kind::kCalloc},
      {"aligned", Kind::kAligned},
      {"reallocs", Kind::kRealloc},
      {"sized_frees", Kind::kFreeSized},
      {"usable_size_queries", Kind::kUsableSize},
      {"forks", Kind::kFork},
      {"phase_marks", Kind::kPhase},
      {"resident_samples", Kind::kResident},
  }};
  json.field("allocations", s.allocations());
  json.field("frees", s.frees());
  for (const auto& [name, kind] : names) {
    json.field(name, s.kinds[static_cast<unsigned>(kind)]);
  }
  json.key("alignments").open('[');
  for (const auto& [alignment, count] : s.alignments) {
    json.open('{').field("alignment", alignment).field("count", count).close('}');
  }
  json.close(']');
}

void blocks(Json& json, Statistics& s) {
  histogram(json, "sizes", s.sizes, 1);
  json.key("top_sizes").open('[');
  for (const auto& [size, count] : s.top_sizes(16)) {
    json.open('{').field("size", size).field("count", count).close('}');
  }
  json.close(']');
  histogram(json, "lifetimes_allocations", s.lifetimes, 1);
  histogram(json, "lifetimes_s", s.lifetimes_ns, 1e-9);
  json.key("never_freed").open('{').field("count", s.live_objects()).field("bytes", s.live()).close('}');
  json.key("remote_frees").open('{');
  json.field("count", s.remote_frees.count).field("bytes", s.remote_frees.bytes);
  const std::uint64_t frees = s.frees();
  json.field("share",
             frees == 0 ? 0.0 : static_cast<double>(s.remote_frees.count) / static_cast<double>(frees));
  json.close('}');
  std::uint64_t chains = 0;
  std::uint64_t longest = 0;
  for (unsigned length = 1; length < s.chain_lengths.size(); ++length) {
    chains += s.chain_lengths[length].count;
    longest = s.chain_lengths[length].count > 0 ? length : longest;
  }
  json.key("realloc_chains").open('{').field("objects", chains).field("longest", longest);
  json.field("longest_is_64_or_more", longest == 64);
  json.field("grown", s.resized_up.count).field("grown_bytes", s.resized_up.bytes);
  json.field("shrunk", s.resized_down.count).field("shrunk_bytes", s.resized_down.bytes);
  json.key("lengths").open('[');
  for (unsigned length = 1; length < s.chain_lengths.size(); ++length) {
    if (const Amount& amount = s.chain_lengths[length]; amount.count > 0) {
      json.open('{')
          .field("reallocs", length)
          .field("objects", amount.count)
          .field("bytes", amount.bytes)
          .close('}');
    }
  }
  json.close(']').close('}');
  json.key("large_blocks").open('{').field("from_bytes", kLargeBlock);
  json.field("freed", s.large_freed.count)
      .field("bytes", s.large_freed.bytes)
      .field("touched_bytes", s.large_touched)
      .field("untouched_at_peak_bytes", s.peak_untouched);
  json.close('}');
}

void bound(Json& json, Statistics& s) {
  json.key("lower_bound").open('{').field("alignment", kGranule).field("page_size", s.pages(1));
  json.field("peak_bytes", s.peak_rounded).field("mean_bytes", s.mean_rounded());
  json.field("peak_page_bytes", s.pages(s.peak_rounded)).field("mean_page_bytes", s.mean_pages());
  json.close('}');
}

void course(Json& json, Statistics& s) {
  json.key("curve").open('{').field("points", s.curve.points().size());
  const auto column = [&](std::string_view name, const auto& pick) {
    json.key(name).open('[');
    for (const Curve::Point& point : s.curve.points()) {
      json.value(pick(point));
    }
    json.close(']');
  };
  std::uint64_t sum = 0;
  column("time_s", [](const Curve::Point& p) { return seconds(p.time); });
  column("event", [&sum](const Curve::Point& p) { return sum += p.events; });
  column("live_bytes", [](const Curve::Point& p) { return p.live; });
  column("peak_bytes", [](const Curve::Point& p) { return p.peak; });
  json.close('}');
}

void thread_list(Json& json, Statistics& s) {
  constexpr std::size_t kShown = 64;
  json.key("thread_list").open('[');
  for (std::size_t i = 0; i < std::min(s.threads.size(), kShown); ++i) {
    const ThreadCounts& t = s.threads[i];
    json.open('{').field("thread", i).field("events", t.events).field("allocations", t.allocations);
    json.field("frees", t.frees).field("remote_frees", t.remote_frees).field("bytes", t.bytes);
    json.field("first_s", seconds(t.first)).field("last_s", seconds(t.last)).close('}');
  }
  json.close(']');
}

void origin(Json& json, const trace::Header& header) {
  json.key("command").open('[');
  for (const std::string& word : header.command) {
    json.value(word);
  }
  json.close(']');
  json.field("executable", header.executable).field("allocator", header.allocator);
  json.field("pid", header.pid).field("start", header.start).field("synthetic", header.synthetic);
  json.field("resident_at_start_bytes", header.resident_at_start);
  json.key("phases").open('[');
  for (const std::string& phase : header.phases) {
    json.value(phase);
  }
  json.close(']');
}

}  // namespace

std::string to_json(Statistics& s, const trace::Header& header, const trace::Loss& loss,
                    std::uint64_t file_bytes) {
  Json json;
  json.open('{').field("events", s.events).field("threads", s.threads.size());
  kinds(json, s);
  const double duration = seconds(s.duration);
  if (s.has_times()) {
    json.field("duration_s", duration).field("events_per_s", static_cast<double>(s.events) / duration);
    json.field("bytes_per_s", static_cast<double>(s.asked_bytes) / duration);
    json.field("peak_time_s", seconds(s.peak_time));
  } else {
    json.null("duration_s").null("events_per_s").null("bytes_per_s").null("peak_time_s");
  }
  json.field("asked_bytes", s.asked_bytes).field("largest_bytes", s.largest);
  json.field("peak_live_bytes", s.peak_live).field("peak_event", s.peak_event);
  json.field("peak_live_objects", s.peak_objects);
  json.field("mean_live_bytes", s.mean_live()).field("averaged_over", s.has_times() ? "time" : "events");
  json.field("end_live_bytes", s.live());
  if (s.peak_resident > 0) {
    json.field("peak_resident_bytes", s.peak_resident);
  } else {
    json.null("peak_resident_bytes");
  }
  bound(json, s);
  json.field("file_bytes", file_bytes);
  if (s.events > 0) {
    json.field("bytes_per_event", static_cast<double>(file_bytes) / static_cast<double>(s.events));
  } else {
    json.null("bytes_per_event");
  }
  blocks(json, s);
  thread_list(json, s);
  course(json, s);
  origin(json, header);
  json.key("loss").open('{').field("bytes", loss.bytes).field("events", loss.events + s.strays);
  json.field("failed_calls", loss.failed_calls)
      .field("cut_short", loss.cut_short)
      .field("why", loss.why)
      .close('}');
  json.close('}');
  return json.text();
}

}  // namespace heapwright::model
