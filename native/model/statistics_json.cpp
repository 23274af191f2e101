// Writes statistics of a trace as JSON.
#include "statistics_json.h"

#include <algorithm>

namespace heapwright::model {

using trace::Json;
using trace::Kind;

namespace {

// A division, so that the figure is the nearest to the exact one and prints in few digits.
double seconds(std::uint64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }

double ratio(double part, double whole) { return part / whole; }

// The number of a bin's border, divided by `units`: 1e9 for nanoseconds, which become seconds.
Json border(unsigned bin, double units) {
  const double number = bin > 64 ? 18446744073709551616.0 : static_cast<double>(bin_low(bin));
  return units == 1 && bin <= 64 ? Json(bin_low(bin)) : Json(number / units);
}

Json histogram(const Histogram& bins, double units) {
  Json list = Json::array();
  for (unsigned bin = 0; bin < bins.size(); ++bin) {
    if (bins[bin].count > 0) {
      list.push_back({{"from", border(bin, units)},
                      {"to", border(bin + 1, units)},
                      {"count", bins[bin].count},
                      {"bytes", bins[bin].bytes}});
    }
  }
  return list;
}

void add_kinds(Json& json, const Statistics& s) {
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
  json["allocations"] = s.allocations();
  json["frees"] = s.frees();
  for (const auto& [name, kind] : names) {
    json[name] = s.kinds[static_cast<unsigned>(kind)];
  }
  Json& alignments = json["alignments"] = Json::array();
  for (const auto& [alignment, count] : s.alignments) {
    alignments.push_back({{"alignment", alignment}, {"count", count}});
  }
}

// Of objects that were resized at least once, by how often.
Json realloc_chains(const Statistics& s) {
  std::uint64_t objects = 0;
  std::uint64_t longest = 0;
  Json lengths = Json::array();
  for (unsigned length = 1; length < s.chain_lengths.size(); ++length) {
    if (const Amount& amount = s.chain_lengths[length]; amount.count > 0) {
      objects += amount.count;
      longest = length;
      lengths.push_back({{"reallocs", length}, {"objects", amount.count}, {"bytes", amount.bytes}});
    }
  }
  return {{"objects", objects},
          {"longest", longest},
          {"longest_is_64_or_more", longest == 64},
          {"grown", s.resized_up.count},
          {"grown_bytes", s.resized_up.bytes},
          {"shrunk", s.resized_down.count},
          {"shrunk_bytes", s.resized_down.bytes},
          {"lengths", std::move(lengths)}};
}

void add_blocks(Json& json, Statistics& s) {
  json["sizes"] = histogram(s.sizes, 1);
  Json& top_sizes = json["top_sizes"] = Json::array();
  for (const auto& [size, count] : s.top_sizes(16)) {
    top_sizes.push_back({{"size", size}, {"count", count}});
  }
  json["lifetimes_allocations"] = histogram(s.lifetimes, 1);
  json["lifetimes_s"] = histogram(s.lifetimes_ns, 1e9);
  json["never_freed"] = {{"count", s.live_objects()}, {"bytes", s.live()}};
  const auto remote = static_cast<double>(s.remote_frees.count);
  json["remote_frees"] = {{"count", s.remote_frees.count},
                          {"bytes", s.remote_frees.bytes},
                          {"share", s.frees() == 0 ? 0.0 : ratio(remote, static_cast<double>(s.frees()))}};
  json["realloc_chains"] = realloc_chains(s);
  json["large_blocks"] = {{"from_bytes", kLargeBlock},
                          {"freed", s.large_freed.count},
                          {"bytes", s.large_freed.bytes},
                          {"touched_bytes", s.large_touched},
                          {"untouched_at_peak_bytes", s.peak_untouched}};
}

Json lower_bound(const Statistics& s) {
  return {{"alignment", kGranule},
          {"page_size", s.pages(1)},
          {"peak_bytes", s.peak_rounded},
          {"mean_bytes", s.mean_rounded()},
          {"peak_page_bytes", s.pages(s.peak_rounded)},
          {"mean_page_bytes", s.mean_pages()}};
}

Json resident_curve(const Statistics& s) {
  Json time = Json::array();
  Json resident = Json::array();
  Json files = Json::array();
  Json heap = Json::array();
  for (const Reading& reading : s.resident_curve.points()) {
    time.push_back(seconds(reading.time));
    resident.push_back(reading.resident);
    files.push_back(reading.files ? Json(*reading.files) : Json());
    heap.push_back(reading.heap ? Json(*reading.heap) : Json());
  }
  return {{"time_s", std::move(time)},
          {"resident_bytes", std::move(resident)},
          {"files_bytes", std::move(files)},
          {"heap_bytes", std::move(heap)}};
}

Json curve(const Statistics& s) {
  Json time = Json::array();
  Json event = Json::array();
  Json live = Json::array();
  Json peak = Json::array();
  std::uint64_t events = 0;
  for (const Curve::Point& point : s.curve.points()) {
    events += point.events;
    time.push_back(seconds(point.time));
    event.push_back(events);
    live.push_back(point.live);
    peak.push_back(point.peak);
  }
  return {{"points", s.curve.points().size()},
          {"time_s", std::move(time)},
          {"event", std::move(event)},
          {"live_bytes", std::move(live)},
          {"peak_bytes", std::move(peak)}};
}

// The first threads only: a program may start very many.
Json thread_list(const Statistics& s) {
  constexpr std::size_t kMaxShown = 64;
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(s.threads.size(), kMaxShown); ++i) {
    const ThreadCounts& t = s.threads[i];
    list.push_back({{"thread", i},
                    {"events", t.events},
                    {"allocations", t.allocations},
                    {"frees", t.frees},
                    {"remote_frees", t.remote_frees},
                    {"bytes", t.bytes},
                    {"first_s", seconds(t.first)},
                    {"last_s", seconds(t.last)}});
  }
  return list;
}

// Divides a reading of resident memory into parts that add up to it: docs/info.md.
//
// reading  the reading
// first    the first reading of the process
// header   of the trace
//
// Returns null if the trace has no such reading.
Json split(const Reading& reading, const Reading& first, const trace::Header& header) {
  if (reading.resident == 0) {
    return {};
  }
  const std::uint64_t files = std::min(reading.files.value_or(0), reading.resident);
  const std::uint64_t anonymous = reading.resident - files;
  const bool forked = header.forked.value_or(false);
  const std::uint64_t inherited =
      forked ? first.resident - std::min(first.files.value_or(0), first.resident) : 0;
  const bool heap_known = reading.heap && (!forked || first.heap);
  const std::uint64_t heap = std::min(reading.heap.value_or(anonymous), anonymous);
  const std::uint64_t live =
      std::min(reading.live - std::min(reading.untouched.value_or(0), reading.live), heap);
  const std::uint64_t from_fork = std::min(inherited, anonymous - live);
  const std::uint64_t rest = anonymous - live - from_fork;
  Json json{{"time_s", seconds(reading.time)},
            {"resident_bytes", reading.resident},
            {"live_bytes", live},
            {"files_bytes", files},
            {"forked_bytes", from_fork},
            {"free_bytes", Json()},
            {"own_bytes", Json()},
            {"free_or_own_bytes", rest}};
  if (heap_known) {
    const std::uint64_t inherited_heap = forked ? std::min(*first.heap, inherited) : 0;
    const std::uint64_t outside = anonymous - heap;
    const std::uint64_t own = std::min(rest, outside - std::min(inherited - inherited_heap, outside));
    json["own_bytes"] = own;
    json["free_bytes"] = rest - own;
  }
  return json;
}

// Whether the trace covers the time up to the end of the process, or of the recording.
bool has_end(const Statistics& s, const trace::Loss& loss) {
  return !loss.cut_short || s.kinds[static_cast<unsigned>(Kind::kEnd)] != 0;
}

// Whether the last reading of resident memory shows the end of the process. One that exits takes a
// reading then. Of any other the live bytes may have changed by at most a tenth since the reading.
bool is_end(const Statistics& s, const trace::Loss& loss) {
  const bool exited = !loss.cut_short && s.kinds[static_cast<unsigned>(Kind::kEnd)] == 0;
  const auto [less, more] = std::minmax({s.last.live, s.live()});
  return exited || more - less <= more / 10;
}

void add_origin(Json& json, const trace::Header& header) {
  json["command"] = header.command;
  json["executable"] = header.executable;
  json["allocator"] = header.allocator;
  json["pid"] = header.pid;
  json["start"] = header.start;
  json["synthetic"] = header.synthetic;
  json["forked"] = header.forked.value_or(false);
  json["resident_at_start_bytes"] = header.resident_at_start;
  json["phases"] = header.phases;
}

}  // namespace

Json to_json(Statistics& s, const trace::Header& header, const trace::Loss& loss, std::uint64_t file_bytes) {
  Json json{{"events", s.events}, {"threads", s.threads.size()}};
  add_kinds(json, s);
  const double duration = seconds(s.duration);
  const bool timed = s.has_times();
  json["duration_s"] = timed ? Json(duration) : Json();
  json["events_per_s"] = timed ? Json(ratio(static_cast<double>(s.events), duration)) : Json();
  json["bytes_per_s"] = timed ? Json(ratio(static_cast<double>(s.asked_bytes), duration)) : Json();
  json["peak_time_s"] = timed ? Json(seconds(s.peak_time)) : Json();
  json["asked_bytes"] = s.asked_bytes;
  json["largest_bytes"] = s.largest;
  json["peak_live_bytes"] = s.peak_live;
  json["peak_event"] = s.peak_event;
  json["peak_live_objects"] = s.peak_objects;
  json["mean_live_bytes"] = s.mean_live();
  json["end_known"] = has_end(s, loss);
  json["averaged_over"] = timed ? "time" : "events";
  json["end_live_bytes"] = s.live();
  json["peak_resident_bytes"] = s.peak_resident > 0 ? Json(s.peak_resident) : Json();
  json["resident_at_peak"] = split(s.peak_reading(), s.first, header);
  json["resident_at_end"] = is_end(s, loss) ? split(s.last, s.first, header) : Json();
  json["lower_bound"] = lower_bound(s);
  json["file_bytes"] = file_bytes;
  json["bytes_per_event"] =
      s.events > 0 ? Json(ratio(static_cast<double>(file_bytes), static_cast<double>(s.events))) : Json();
  add_blocks(json, s);
  json["thread_list"] = thread_list(s);
  json["curve"] = curve(s);
  json["resident_curve"] = resident_curve(s);
  add_origin(json, header);
  json["loss"] = {{"bytes", loss.bytes},
                  {"events", loss.events + s.unknown_object_events},
                  {"failed_calls", loss.failed_calls},
                  {"cut_short", loss.cut_short},
                  {"why", loss.why}};
  return json;
}

}  // namespace heapwright::model
