// Holds the options of the meter: parsed once in options.cpp, plain data afterwards.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace heapwright::meter {

enum class Backend : std::uint8_t { kAuto, kNotify, kPtrace, kPoll, kNone };

struct Options {
  Backend backend = Backend::kAuto;
  std::string output;             // JSON file; empty: none
  std::int64_t interval_ms = 10;  // of the tick
  bool massif = false;
  bool massif_as_valgrind = true;  // brk and addresses as under Valgrind (valgrind_layout.h)
  bool pss = false;                // read proportional set sizes too
  bool parts = false;      // with pss: divide the memory by its kind (parts.h); readings may cost more
  std::size_t series = 0;  // points of memory over time to keep; 0: none
  double timeout_s = 0;    // 0: none
  double kill_grace_s = 2;
  double checkpoint_s = 0;       // how often the output is written while the target runs; 0: never
  bool die_with_parent = false;  // kill the target when the parent of the meter ends
  bool attended = false;         // a user at a terminal started the target: signals are passed on to it
  pid_t parent = 0;              // the expected parent, which may end before the meter starts
  bool wait_for_root_only = false;
  bool probe = false;
  std::vector<char*> command;  // ends with nullptr
};

// Exit statuses of the meter itself; the target's status is in the JSON.
constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr int kCannotExecute = 126;
constexpr int kNotFound = 127;

// Returns false with one line in `error` for bad usage.
bool parse_options(int argc, char** argv, Options& options, std::string& error);

const char* backend_name(Backend backend);

}  // namespace heapwright::meter
