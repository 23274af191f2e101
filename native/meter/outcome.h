// Holds the outcome of a run and writes it as JSON.
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
  bool unfinished = false;  // the run goes on; this is a report of it so far
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
  std::set<std::string> warnings;  // in addition to the watcher's

  // Adds the usage that wait4 gives for a child of the meter. It includes the children for which
  // that child has waited.
  void add(const rusage& usage);
};

// The warning that the CPU time of some processes is not known before they end.
//
// parent  the process that ignores SIGCHLD
std::string whole_run_only(const std::string& parent);

// Returns the whole report as one JSON object.
//
// outcome  status, times and faults
// ledger   memory
// watcher  calls, processes, cgroup and PSS
std::string to_json(const Outcome& outcome, const Ledger& ledger, const Watcher& watcher);

// Writes a file, which appears when it is complete. Returns false with errno set if it cannot be
// written.
bool write_whole(const std::string& path, const std::string& text);

// Returns a JSON string with its quotes. Each byte that is no UTF-8, as in some paths, becomes
// U+FFFD.
std::string quoted(const std::string& text);

}  // namespace heapwright::meter
