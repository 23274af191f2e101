// The sub-commands of heapwright-trace that pack a trace, print one as text, and pack such a text.
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "command.h"
#include "open.h"
#include "trace/json.h"
#include "trace/pack.h"
#include "trace/packed.h"
#include "trace/text.h"

namespace heapwright::trace {

namespace {

std::uint64_t size_of(const char* path) {
  struct stat status{};
  return ::stat(path, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

}  // namespace

// pack TRACE FILE: packs a trace, and prints a summary as JSON.
int pack_command(Words words) {
  std::string error;
  const auto source = open_trace(words[0], error);
  Packed done;
  if (!source || !pack(*source, words[1], done, error)) {
    return fail(error);
  }
  const Summary& s = done.summary;
  const Json json{{"events", s.events},
                  {"allocations", s.allocations},
                  {"threads", s.threads},
                  {"peak_live_bytes", s.peak_live_bytes},
                  {"bytes", size_of(words[1])},
                  {"lost_bytes", done.loss.bytes},
                  {"lost_events", done.loss.events},
                  {"cut_short", done.loss.cut_short}};
  (void)std::printf("%s\n", to_line(json).c_str());
  if (!done.loss.why.empty()) {
    (void)std::fprintf(stderr, "heapwright-trace: %s: %s\n", words[0], done.loss.why.c_str());
  }
  return 0;
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
  if (const Loss loss = source->loss(); !loss.why.empty()) {
    (void)std::fprintf(stderr, "heapwright-trace: %s: %s\n", words[0], loss.why.c_str());
  }
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
