// Implements the sub-commands of heapwright-trace that count, fit, generate and convert traces.
// Results are JSON on stdout.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "command.h"
#include "limits.h"
#include "model/fit.h"
#include "model/model_json.h"
#include "model/rand_malloc.h"
#include "model/sample_error.h"
#include "model/sample_statistics.h"
#include "model/scale.h"
#include "model/statistics.h"
#include "model/statistics_json.h"
#include "model/synth.h"
#include "open.h"
#include "trace/formats.h"
#include "trace/json.h"
#include "trace/pack.h"

namespace heapwright::trace {

namespace {

void print(const Json& json) { (void)std::printf("%s\n", to_line(json).c_str()); }

Json loss_json(const Loss& loss) {
  return {{"bytes", loss.bytes}, {"events", loss.events}, {"cut_short", loss.cut_short}, {"why", loss.why}};
}

// Packs the events of a new trace into a file, and prints its counts and the losses of its source.
int pack_new_trace(EventSource& source, const char* path) {
  Packed done;
  std::string error;
  if (!pack(source, path, done, error)) {
    return fail(error);
  }
  const Summary& s = done.summary;
  Json loss = loss_json(done.loss);
  loss["failed_calls"] = done.loss.failed_calls;
  print({{"events", s.events},
         {"allocations", s.allocations},
         {"threads", s.threads},
         {"peak_live_bytes", s.peak_live_bytes},
         {"peak_live_objects", s.peak_live_objects},
         {"loss", std::move(loss)}});
  return 0;
}

// Splits names at commas; "-" stands for none.
std::vector<std::string> split(std::string_view names) {
  std::vector<std::string> found;
  while (!names.empty() && names != "-") {
    const std::size_t end = std::min(names.find(','), names.size());
    found.emplace_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  return found;
}

// A synthetic trace whose header names the libraries that the modelled program loads.
class WithLibraries : public EventSource {
 public:
  WithLibraries(std::unique_ptr<EventSource> source, std::vector<std::string> libraries)
      : source_(std::move(source)), header_(source_->header()) {
    header_.libraries = std::move(libraries);
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

std::string read_all(std::FILE* file) {
  std::string text;
  std::array<char, 1 << 16> buffer{};
  while (const std::size_t bytes = std::fread(buffer.data(), 1, buffer.size(), file)) {
    text.append(buffer.data(), bytes);
  }
  return text;
}

// The statistics of a trace. Those of a sample are of the complete trace that it stands for, with
// the estimates and their standard errors in "sample". Null, and `error` set, if it cannot be read.
Json statistics_of(const char* path, std::string& error) {
  const auto source = open_trace(path, error);
  if (!source) {
    return {};
  }
  const std::uint64_t rate = source->header().sample;
  model::Statistics statistics(source->header().page_size, rate);
  if (rate > 0) {
    model::count_sample(*source, statistics);
  } else {
    for (Event event; source->next(event);) {
      statistics.add(event);
    }
  }
  struct stat status{};
  const auto bytes = ::stat(path, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
  Json json = model::to_json(statistics, source->header(), source->loss(), bytes);
  json["sample"] = nullptr;
  if (rate > 0) {
    if (const auto sample = open_trace(path, error); sample) {
      if (const auto found = model::sample_error(*sample)) {
        model::put_estimates(json, *found);
      }
    }
  }
  return json;
}

}  // namespace

// info TRACE
int info_command(Words words) {
  std::string error;
  const Json json = statistics_of(words[0], error);
  if (json.is_null()) {
    return fail(error);
  }
  print(json);
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
  std::uint64_t rate = 0;
  const model::Opener open = [&] {
    auto source = open_complete(words[0], kSeed, error, &rate);
    executable = source ? source->header().executable : "";
    return source;
  };
  Loss loss;
  std::string why;
  Json fitted;
  if (std::string(words[1]) == "rand-malloc") {
    model::RandMallocModel found;
    if (!model::fit_rand_malloc(open, found, loss, why)) {
      return fail(error.empty() ? why : error);
    }
    fitted = model::to_json(found);
  } else {
    model::FitOptions options;
    options.windows = static_cast<std::uint64_t>(windows);
    options.bytes = static_cast<std::size_t>(bytes);
    if (const auto source = open(); source) {
      options.sample = rate;
    }
    model::Model found;
    if (!model::fit(open, options, found, loss, why)) {
      return fail(error.empty() ? why : error);
    }
    fitted = model::to_json(found);
  }
  if (rate > 0) {
    const Json statistics = statistics_of(words[0], error);
    if (statistics.is_null()) {
      return fail(error);
    }
    fitted["sample"] = statistics["sample"];
  }
  // The path of the program is not part of the model: the caller finds its libraries by it.
  print({{"executable", executable}, {"model", std::move(fitted)}});
  if (!loss.why.empty()) {
    (void)std::fprintf(stderr, "%s\n", loss.why.c_str());
  }
  return 0;
}

// synth HEAP TIME SEED FILE LIBRARIES, with a model as JSON on stdin. LIBRARIES: names with commas
// between them, or "-".
int synth_command(Words words) {
  double heap = 0;
  double time = 0;
  std::uint64_t seed = 0;
  if (!number(words[0], heap) || !number(words[1], time) || heap <= 0 || time <= 0) {
    return fail("HEAP and TIME are numbers above 0");
  }
  if (!whole_number(words[2], seed)) {
    return fail("SEED is a whole number");
  }
  model::AnyModel fitted;
  std::string error;
  if (!model::read_model(read_all(stdin), fitted, error)) {
    return fail(error);
  }
  if (!std::visit([&](auto& any) { return model::scale(any, heap, time); }, fitted)) {
    return fail(
        "the scaled model is too large: a window would have more than 2^30 allocations; choose a smaller "
        "--scale or --time-scale");
  }
  const double needed = model::memory_needed(fitted) / (1 << 30);
  const double available = static_cast<double>(available_memory()) / (1 << 30);
  if (needed > available) {
    std::array<char, 160> line{};
    (void)std::snprintf(
        line.data(), line.size(),
        "generating the trace needs about %.0f GiB of memory, but only %.0f GiB are available: choose a "
        "smaller --scale or --time-scale",
        needed, available);
    return fail(line.data());
  }
  WithLibraries source(model::make_synthetic(std::move(fitted), seed), split(words[4]));
  return pack_new_trace(source, words[3]);
}

// import-wl FILE TRACE
int import_wl_command(Words words) {
  std::string error;
  const auto source = open_wl(words[0], error);
  return source ? pack_new_trace(*source, words[1]) : fail(error);
}

// import-heaptrack TRACE, the text on stdin
int import_heaptrack_command(Words words) {
  std::string error;
  const auto source = open_heaptrack(stdin, error);
  return source ? pack_new_trace(*source, words[0]) : fail(error);
}

// export-wl TRACE FILE
int export_wl_command(Words words) {
  std::string error;
  const auto source = open_complete(words[0], kSeed, error);
  Exported done;
  if (!source || !write_wl(*source, words[1], done, error)) {
    return fail(error);
  }
  print({{"events", done.events}, {"left_out", done.left_out}, {"loss", loss_json(source->loss())}});
  return 0;
}

}  // namespace heapwright::trace
