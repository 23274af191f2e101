// The sub-commands of heapwright-trace that count, fit, make up and convert traces. Results are JSON on stdout.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "command.h"
#include "limits.h"
#include "model/fit.h"
#include "model/json.h"
#include "model/rand_malloc.h"
#include "model/scale.h"
#include "model/statistics.h"
#include "model/statistics_json.h"
#include "model/synth.h"
#include "open.h"
#include "trace/formats.h"
#include "trace/pack.h"

namespace heapwright::trace {

namespace {

using model::Json;

void print(const std::string& text) { (void)std::printf("%s\n", text.c_str()); }

// Packs a source and prints what came of it.
int pack_and_print(EventSource& source, const char* path) {
  Packed done;
  std::string error;
  if (!pack(source, path, done, error)) {
    return fail(error);
  }
  const Summary& s = done.summary;
  Json json;
  json.open('{').field("events", s.events).field("allocations", s.allocations).field("threads", s.threads);
  json.field("peak_live_bytes", s.peak_live_bytes).field("peak_live_objects", s.peak_live_objects);
  json.key("loss").open('{').field("bytes", done.loss.bytes).field("events", done.loss.events);
  json.field("failed_calls", done.loss.failed_calls)
      .field("cut_short", done.loss.cut_short)
      .field("why", done.loss.why);
  json.close('}').close('}');
  print(json.text());
  return 0;
}

// A made-up trace of a program that has these libraries.
class WithLibraries : public EventSource {
 public:
  WithLibraries(std::unique_ptr<EventSource> source, std::string_view names)
      : source_(std::move(source)), header_(source_->header()) {
    while (!names.empty() && names != "-") {
      const std::size_t end = std::min(names.find(','), names.size());
      header_.libraries.emplace_back(names.substr(0, end));
      names.remove_prefix(std::min(end + 1, names.size()));
    }
  }
  const Header& header() const override { return header_; }
  bool next(Event& event) override { return source_->next(event); }
  Loss loss() const override { return source_->loss(); }

 private:
  std::unique_ptr<EventSource> source_;
  Header header_;
};

bool number(const char* text, double& value) {
  char* end = nullptr;
  value = std::strtod(text, &end);
  return end != text && *end == '\0' && value >= 0;
}

}  // namespace

// info TRACE
int info_command(Words words) {
  std::string error;
  const auto source = open_trace(words[0], error);
  if (!source) {
    return fail(error);
  }
  model::Statistics statistics(source->header().page_size);
  Event event;
  while (source->next(event)) {
    statistics.add(event);
  }
  struct stat status{};
  const auto bytes = ::stat(words[0], &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  print(model::to_json(statistics, source->header(), source->loss(), bytes));
  return 0;
}

// fit TRACE windows|rand-malloc WINDOWS BYTES
int fit_command(Words words) {
  double windows = 0;
  double bytes = 0;
  if (!number(words[2], windows) || !number(words[3], bytes) || windows < 1 || windows > 100000) {
    return fail("WINDOWS and BYTES are numbers above 0");
  }
  std::string error;
  std::string executable;
  const model::Opener open = [&] {
    auto source = open_trace(words[0], error);
    executable = source ? source->header().executable : "";
    return source;
  };
  model::Model found;
  Loss loss;
  std::string why;
  std::string text;
  if (std::string(words[1]) == "rand-malloc") {
    std::vector<model::MeanClass> means;
    if (!model::fit_rand_malloc(open, means, found, loss, why)) {
      return fail(error.empty() ? why : error);
    }
    text = model::to_json(means, found);
  } else {
    model::FitOptions options;
    options.windows = static_cast<std::uint64_t>(windows);
    options.bytes = static_cast<std::size_t>(bytes);
    if (!model::fit(open, options, found, loss, why)) {
      return fail(error.empty() ? why : error);
    }
    text = model::to_json(found);
  }
  Json of;  // the program: not of the model, but whoever asked may look at it
  of.open('{').field("executable", executable).key("model");
  print(of.text() + text + '}');
  if (!loss.why.empty()) {
    (void)std::fprintf(stderr, "%s\n", loss.why.c_str());
  }
  return 0;
}

// synth HEAP TIME FILE LIBRARIES, a plan on stdin; names with commas between them, or -
int synth_command(Words words) {
  double heap = 0;
  double time = 0;
  if (!number(words[0], heap) || !number(words[1], time) || heap <= 0 || time <= 0) {
    return fail("HEAP and TIME are numbers above 0");
  }
  model::Plan plan;
  std::string error;
  if (!model::read_plan(stdin, plan, error)) {
    return fail(error);
  }
  if (!model::scale(plan.model, heap, time)) {
    return fail("that is more than can be made up: a window would have more than 2^30 allocations");
  }
  for (model::MeanClass& mean : plan.means) {
    mean.count = model::whole(static_cast<double>(mean.count) * heap * time);
    mean.lifetime = model::whole(static_cast<double>(mean.lifetime) * heap);
  }
  if (plan.rand_malloc) {
    plan.nanoseconds = static_cast<std::uint64_t>(static_cast<double>(plan.nanoseconds) * heap * time);
  }
  const double needed = model::memory_needed(plan) / (1 << 30);
  const double there = static_cast<double>(available_memory()) / (1 << 30);
  if (needed > there) {
    std::array<char, 160> line{};
    (void)std::snprintf(
        line.data(), line.size(),
        "making it up would take about %.0f GiB of memory, and %.0f GiB are there: choose a smaller "
        "--scale or --time-scale",
        needed, there);
    return fail(line.data());
  }
  WithLibraries source(model::make_synthetic(std::move(plan)), words[3]);
  return pack_and_print(source, words[2]);
}

// import-wl FILE TRACE
int import_wl_command(Words words) {
  std::string error;
  const auto source = open_wl(words[0], error);
  return source ? pack_and_print(*source, words[1]) : fail(error);
}

// import-heaptrack TRACE, the text on stdin
int import_heaptrack_command(Words words) {
  std::string error;
  const auto source = open_heaptrack(stdin, error);
  return source ? pack_and_print(*source, words[0]) : fail(error);
}

// export-wl TRACE FILE
int export_wl_command(Words words) {
  std::string error;
  const auto source = open_trace(words[0], error);
  Exported done;
  if (!source || !write_wl(*source, words[1], done, error)) {
    return fail(error);
  }
  Json json;
  json.open('{').field("events", done.events).field("left_out", done.left_out);
  const Loss loss = source->loss();
  json.key("loss")
      .open('{')
      .field("bytes", loss.bytes)
      .field("events", loss.events)
      .field("cut_short", loss.cut_short);
  json.field("why", loss.why).close('}').close('}');
  print(json.text());
  return 0;
}

}  // namespace heapwright::trace
