// Runs heapwright-trace, the command-line tool that works on traces, with one sub-command for each
// job.
#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <new>
#include <string_view>

#include "command.h"
#include "limits.h"

namespace {

using heapwright::trace::Command;

constexpr std::array kCommands{
    Command{"pack", "TRACE FILE", heapwright::trace::pack_command},
    Command{"dump", "TRACE", heapwright::trace::dump_command},
    Command{"parse", "TEXT FILE", heapwright::trace::parse_command},
    Command{"sample", "TRACE -o FILE -n N --seed SEED", heapwright::trace::sample_command},
    Command{"complete", "SAMPLE FILE SEED", heapwright::trace::complete_command},
    Command{"cut", "TRACE FILE BEGIN END", heapwright::trace::cut_command},
    Command{"expand", "TRACE OPS", heapwright::trace::expand_command},
    Command{"info", "TRACE", heapwright::trace::info_command},
    Command{"fit", "TRACE windows|rand-malloc WINDOWS BYTES", heapwright::trace::fit_command},
    Command{"synth", "HEAP TIME SEED FILE LIBRARIES", heapwright::trace::synth_command},
    Command{"import-wl", "FILE TRACE", heapwright::trace::import_wl_command},
    Command{"import-heaptrack", "TRACE", heapwright::trace::import_heaptrack_command},
    Command{"export-wl", "TRACE FILE", heapwright::trace::export_wl_command},
};

int usage() {
  for (const Command& command : kCommands) {
    (void)std::fprintf(stderr, "usage: heapwright-trace %s %s\n", command.name, command.arguments);
  }
  return 2;
}

// Returns the number of words in an argument line.
std::size_t count_words(std::string_view arguments) {
  return 1 + static_cast<std::size_t>(std::count(arguments.begin(), arguments.end(), ' '));
}

}  // namespace

int main(int argc, char** argv) {
  heapwright::trace::die_with_parent();
  heapwright::trace::limit_memory(heapwright::trace::available_memory());
  const heapwright::trace::Words words(argv, static_cast<std::size_t>(argc));
  for (const Command& command : kCommands) {
    if (argc >= 2 && std::string_view(argv[1]) == command.name) {
      if (words.size() - 2 != count_words(command.arguments)) {
        (void)std::fprintf(stderr, "usage: heapwright-trace %s %s\n", command.name, command.arguments);
        return 2;
      }
      try {
        return command.run(words.subspan(2));
      } catch (const std::bad_alloc&) {
        return heapwright::trace::fail("out of memory");
      } catch (const std::exception& problem) {
        return heapwright::trace::fail(problem.what());
      }
    }
  }
  return usage();
}
