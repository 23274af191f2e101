// Declares the sub-commands of heapwright-trace. Only heapwright's Python code calls them, so the
// arguments are positional. An error is one line on stderr and exit status 1, or 2 for wrong
// arguments.
#pragma once

#include <cstdio>
#include <span>
#include <string>

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

// pack_commands.cpp
int pack_command(Words words);
int dump_command(Words words);
int parse_command(Words words);
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
