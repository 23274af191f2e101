// Implements the sub-commands of heapwright-trace that pack a trace, a sample or a span of it,
// print a trace as text, and pack such a text.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "command.h"
#include "open.h"
#include "trace/cut.h"
#include "trace/json.h"
#include "trace/pack.h"
#include "trace/packed.h"
#include "trace/sample.h"
#include "trace/text.h"

namespace heapwright::trace {

namespace {

std::uint64_t size_of(const char* path) {
  struct stat status{};
  return ::stat(path, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

// Packs events of the trace file `trace` into the file `path`, and prints their counts, the size of
// the file and the rate of the sample. `source` gives the events.
int repack_trace(EventSource& source, const char* trace, const char* path) {
  std::string error;
  Packed done;
  if (!pack(source, path, done, error)) {
    return fail(error);
  }
  const Summary& s = done.summary;
  return print_with_loss({{"events", s.events},
                          {"allocations", s.allocations},
                          {"requests", done.ticks},
                          {"threads", s.threads},
                          {"peak_live_bytes", s.peak_live_bytes},
                          {"bytes", size_of(path)},
                          {"sample", source.header().sample}},
                         trace, done.loss);
}

}  // namespace

// pack TRACE FILE: packs a trace, and prints a summary as JSON.
int pack_command(Words words) {
  std::string error;
  const auto source = open_trace(words[0], error);
  return source ? repack_trace(*source, words[0], words[1]) : fail(error);
}

// sample TRACE -o FILE -n N --seed SEED: packs a sample of a trace, and prints a summary as JSON.
int sample_command(Words words) {
  std::uint64_t rate = 0;
  std::uint64_t seed = 0;
  if (std::string_view(words[1]) != "-o" || std::string_view(words[3]) != "-n" ||
      std::string_view(words[5]) != "--seed" || !whole_number(words[4], rate) ||
      !whole_number(words[6], seed)) {
    (void)fail("the arguments of sample are TRACE -o FILE -n N --seed SEED; N and SEED are whole numbers");
    return 2;
  }
  std::string error;
  auto source = open_trace(words[0], error);
  if (!source) {
    return fail(error);
  }
  if (rate == 0 || rate < source->header().sample) {
    const std::string min_rate = std::to_string(std::max<std::uint64_t>(1, source->header().sample));
    (void)fail(std::string(words[0]) + ": N is " + words[4] + ", but must be at least " + min_rate);
    return 2;
  }
  SampleSource sample(std::move(source), rate, seed);
  return repack_trace(sample, words[0], words[2]);
}

// complete SAMPLE FILE SEED: packs the complete trace that a sample stands for, and prints a
// summary as JSON.
int complete_command(Words words) {
  std::uint64_t seed = 0;
  if (!whole_number(words[2], seed)) {
    (void)fail("SEED is a whole number");
    return 2;
  }
  std::string error;
  const auto source = open_complete(words[0], seed, error);
  return source ? repack_trace(*source, words[0], words[1]) : fail(error);
}

// cut TRACE FILE BEGIN END: packs a span of a trace, and prints a summary as JSON. BEGIN and END
// are nanoseconds of the trace; END may be "-", the end of the trace.
int cut_command(Words words) {
  std::uint64_t begin = 0;
  std::uint64_t end = kUnknown;
  if (!whole_number(words[2], begin) || (std::string_view(words[3]) != "-" && !whole_number(words[3], end)) ||
      begin > end) {
    (void)fail("BEGIN and END are whole numbers, and END is not before BEGIN");
    return 2;
  }
  std::string error;
  auto source = open_trace(words[0], error);
  if (!source) {
    return fail(error);
  }
  CutSource span(std::move(source), begin, end);
  return repack_trace(span, words[0], words[1]);
}

// dump TRACE: prints the events as text, and losses on stderr.
int dump_command(Words words) {
  std::string error;
  const auto source = open_trace(words[0], error);
  if (!source) {
    return fail(error);
  }
  Event event;
  while (source->next(event)) {
    if (std::puts(to_text(event).c_str()) < 0) {
      return fail("stdout cannot be written");
    }
  }
  warn_of_loss(words[0], source->loss());
  return 0;
}

// parse TEXT FILE: packs the text that dump prints; times keep their nanoseconds.
int parse_command(Words words) {
  std::ifstream text(words[0]);
  if (!text) {
    return fail(std::string(words[0]) + ": cannot be read");
  }
  std::string error;
  Header header;
  header.synthetic = true;
  const auto writer = PackedWriter::create(words[1], header, error, 1);
  if (!writer) {
    return fail(error);
  }
  std::string line;
  for (std::uint64_t number = 1; std::getline(text, line); number++) {
    Event event;
    if (!from_text(line, event, error)) {
      if (error.empty()) {
        continue;
      }
      return fail(std::string(words[0]) + ":" + std::to_string(number) + ": " + error);
    }
    if (!writer->add(event)) {
      return fail(std::string(words[0]) + ":" + std::to_string(number) + ": " + writer->error());
    }
  }
  return writer->finish({}) ? 0 : fail(writer->error());
}

}  // namespace heapwright::trace
