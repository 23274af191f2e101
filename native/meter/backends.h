// Declares the back ends. Each observes a run in its own way and feeds the same watcher and
// supervisor.
//
//   notify  seccomp user notification: one stop at the entry of each watched call, about 2.5 us;
//           no ptrace, so debuggers still work inside
//   ptrace  SECCOMP_RET_TRACE: about 4 us a stop; two stops a call for Massif's figures
//   poll    readings every 10 ms; counts no calls, works everywhere
//   none    only wait4: the baseline for the cost of the others
#pragma once

#include <cstdint>
#include <string>

#include "counters.h"
#include "options.h"
#include "outcome.h"
#include "spawn.h"
#include "supervisor.h"
#include "watcher.h"

namespace heapwright::meter {

// The objects that a back end works with. The child is forked and waits to be released.
struct RunContext {
  const Options& options;
  Spawned& child;
  Supervisor& supervisor;
  Watcher& watcher;
  Ledger& ledger;
  Outcome& outcome;
  InstructionCounter& instructions;
  EnergyCounter& energy;

  // Switches the counters on, starts the clocks and releases the child.
  void go() const;
  // Called at every tick, after the watcher's: reads the energy, and writes the report so far if
  // that is due.
  void tick(double time);

  double next_checkpoint = 0;
};

// Each returns false with one line in `error` if it could not run the target.
bool run_notify(RunContext& context, std::string& error);
bool run_ptrace(RunContext& context, std::string& error);
bool run_poll(RunContext& context, std::string& error);
bool run_none(RunContext& context, std::string& error);

// Returns a timer descriptor that becomes readable every `interval_ms` milliseconds, -1 if the
// kernel has none. The caller closes it.
int open_ticker(std::int64_t interval_ms);

// Returns the SECCOMP_RET_* action for the filter of the back end's child, 0 for no filter.
std::uint32_t filter_action(Backend backend);

// Returns whether a back end works here; tries it in a child of its own. `why` gets the reason if
// not.
bool backend_works(Backend backend, std::string& why);
// Returns JSON that says which features work here.
std::string probe_json();

}  // namespace heapwright::meter
