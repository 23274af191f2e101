// Declares the sub-commands of heapwright-trace. Only heapwright's Python code calls them, so the
// arguments are positional. An error is one line on stderr and exit status 1, or 2 for wrong
// arguments.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "trace/event.h"
#include "trace/json.h"

namespace heapwright::trace {

using Words = std::span<const char* const>;  // the arguments after the name of the sub-command

struct Command {
  const char* name;
  const char* arguments;
  int (*run)(Words words);
};

inline int fail(const std::string& message) {
  (void)std::fprintf(stderr, "heapwright-trace: %s\n", message.c_str());
  return 1;
}

// Parses a whole number. Returns false if the text is not a number.
inline bool whole_number(std::string_view text, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

// Warns on stderr if something of a trace could not be read.
inline void warn_of_loss(const char* trace, const Loss& loss) {
  if (!loss.why.empty()) {
    (void)std::fprintf(stderr, "heapwright-trace: %s: %s\n", trace, loss.why.c_str());
  }
}

// Prints the results of a sub-command as JSON, with what could not be read of its trace; warns of a
// loss too. Returns the exit status.
inline int print_with_loss(Json json, const char* trace, const Loss& loss) {
  json["lost_bytes"] = loss.bytes;
  json["lost_events"] = loss.events;
  json["cut_short"] = loss.cut_short;
  (void)std::printf("%s\n", to_line(json).c_str());
  warn_of_loss(trace, loss);
  return 0;
}

// pack_commands.cpp
int pack_command(Words words);
int dump_command(Words words);
int parse_command(Words words);
int sample_command(Words words);
int complete_command(Words words);
int cut_command(Words words);
// expand_command.cpp
int expand_command(Words words);
// model_commands.cpp
int info_command(Words words);
int fit_command(Words words);
int synth_command(Words words);
int import_wl_command(Words words);
int import_heaptrack_command(Words words);
int export_wl_command(Words words);

}  // namespace heapwright::trace
