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

// Returns whether `count` words fit an argument line. A word in [brackets] may be left out, and a
// word that ends with '…' stands for any number of words.
bool fits(std::string_view arguments, std::size_t count) {
  std::size_t min_count = 0;
  std::size_t max_count = 0;
  while (!arguments.empty()) {
    const std::size_t end = std::min(arguments.find(' '), arguments.size());
    const std::string_view word = arguments.substr(0, end);
    max_count = word.ends_with("…") ? ~std::size_t{0} >> 1 : max_count + 1;
    min_count += word.starts_with('[') || word == "…" ? 0 : 1;
    arguments.remove_prefix(std::min(end + 1, arguments.size()));
  }
  return count >= min_count && count <= max_count;
}

}  // namespace

int main(int argc, char** argv) {
  heapwright::trace::die_with_parent();
  heapwright::trace::limit_memory(heapwright::trace::available_memory());
  const heapwright::trace::Words words(argv, static_cast<std::size_t>(argc));
  for (const Command& command : kCommands) {
    if (argc >= 2 && std::string_view(argv[1]) == command.name) {
      if (!fits(command.arguments, words.size() - 2)) {
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
