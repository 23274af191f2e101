// The back ends: each sees a run in its own way and feeds the same watcher and supervisor.
//
//   notify  seccomp user notification: one stop at the entry of each watched call, about 2.5 us; no ptrace,
//           so debuggers still work inside
//   ptrace  SECCOMP_RET_TRACE: about 4 us a stop; two stops a call for Massif's figures
//   poll    readings every 10 ms; counts no calls, works everywhere
//   none    only wait4: what the others are held against
#pragma once

#include <string>

#include "counters.h"
#include "options.h"
#include "outcome.h"
#include "spawn.h"
#include "supervisor.h"
#include "watcher.h"

namespace heapwright::meter {

// Everything a back end works with. The child is forked and waits; nothing has been released yet.
struct RunContext {
  const Options& options;
  Spawned& child;
  Supervisor& supervisor;
  Watcher& watcher;
  Ledger& ledger;
  Outcome& outcome;
  InstructionCounter& instructions;

  // The moment before the target starts: counters on, clocks started, the child let go.
  void go() const;
};

// Each returns false with one line in `error` if it could not run the target.
bool run_notify(RunContext& context, std::string& error);
bool run_ptrace(RunContext& context, std::string& error);
bool run_poll(RunContext& context, std::string& error);
bool run_none(RunContext& context, std::string& error);

// The SECCOMP_RET_* action a back end's child must filter with, 0 for none.
std::uint32_t filter_action(Backend backend);

// Whether a back end works here, tried in a throw-away child; `why` gets the reason if not.
bool backend_works(Backend backend, std::string& why);
// JSON of what works here.
std::string probe_json();

}  // namespace heapwright::meter
