// What came of a run, and its JSON.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "ledger.h"
#include "options.h"
#include "watcher.h"

namespace heapwright::meter {

struct Outcome {
  Backend backend = Backend::kNone;
  int status = 0;  // of the root, as wait4 gives it
  bool timed_out = false;
  double start = 0;
  double end = 0;
  double user_s = 0;
  double sys_s = 0;
  std::uint64_t minor_faults = 0;
  std::uint64_t major_faults = 0;
  std::uint64_t max_rss = 0;  // the largest ru_maxrss of all
  std::optional<std::uint64_t> instructions;
  std::optional<double> energy_j;
  std::optional<std::uint64_t> massif_peak;
  std::set<std::string> warnings;  // beside the watcher's

  // Adds what wait4 said of a child of ours: it includes the children it waited for itself.
  void add(const rusage& usage);
};

// The whole report as one JSON object.
std::string to_json(const Outcome& outcome, const Ledger& ledger, const Watcher& watcher);

// Writes a file under a temporary name and renames it; false with errno set.
bool write_whole(const std::string& path, const std::string& text);

// A JSON string with its quotes.
std::string quoted(const std::string& text);

}  // namespace heapwright::meter
