// heapwright-meter: runs a command and keeps the ledger of its memory. See options.h for the
// command line and docs/meter.md for the metrics and their measurement.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "backends.h"
#include "huge.h"

namespace heapwright::meter {

namespace {

int fail(int status, const std::string& message) {
  (void)std::fprintf(stderr, "heapwright-meter: %s\n", message.c_str());
  return status;
}

// Chooses the back end. kNone is used only on request.
bool choose(const Options& options, Outcome& outcome, std::string& error) {
  Backend& backend = outcome.backend;
  if (options.backend == Backend::kNone || options.backend == Backend::kPoll) {
    backend = options.backend;
    return true;
  }
  std::string why;
  if (options.backend == Backend::kAuto && !options.massif) {
    std::string reasons;
    for (const Backend candidate : {Backend::kNotify, Backend::kPtrace}) {
      if (backend_works(candidate, why)) {
        backend = candidate;
        return true;
      }
      reasons += (reasons.empty() ? "" : "; ") + why;
    }
    backend = Backend::kPoll;
    outcome.warnings.insert(
        "memory is only polled, so short peaks are missed and returned memory is not known: " + reasons);
    return true;
  }
  backend = options.massif ? Backend::kPtrace : options.backend;
  if (backend_works(backend, why)) {
    return true;
  }
  error = std::string("the ") + backend_name(backend) + " back end does not work here: " + why +
          (options.massif ? "; leave out --massif-compat" : "; leave out --meter, or use --meter poll");
  return false;
}

bool dispatch(RunContext& context, std::string& error) {
  switch (context.outcome.backend) {
    case Backend::kNotify:
      return run_notify(context, error);
    case Backend::kPtrace:
      return run_ptrace(context, error);
    case Backend::kPoll:
      return run_poll(context, error);
    default:
      return run_none(context, error);
  }
}

// Reports why the child could not exec.
//
// program  as the user named it
// path     the file that was found for it
// problem  the errno of exec
int exec_failure(const std::string& program, const std::string& path, int problem) {
  if (problem == ENOENT) {
    // The file may exist without its interpreter.
    const bool exists = access(path.c_str(), F_OK) == 0;
    return fail(kNotFound, exists ? "its interpreter is missing: " + path : "command not found: " + program);
  }
  return fail(kCannotExecute, "cannot execute " + program + ": " + std::strerror(problem));
}

// The meter keeps a file open for each process of the tree. The target has its caller's limit.
void raise_file_limit() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
  }
}

int meter(const Options& options) {
  if (!obey_huge_pages_variable()) {
    return fail(kFailed, std::string("cannot forbid huge pages for the program: ") + std::strerror(errno));
  }
  std::string error;
  Outcome outcome;
  if (!choose(options, outcome, error)) {
    return fail(kFailed, error);
  }
  Supervisor supervisor(options);
  sigset_t mask;
  if (!supervisor.open(mask)) {
    return fail(kFailed, "cannot take signals, or the caller has gone");
  }
  Spawned child;
  if (const int status = child.fork_child(options, filter_action(outcome.backend), mask, error);
      status != 0) {
    return fail(status, error);
  }
  raise_file_limit();
  Ledger ledger(options.series);
  Watcher watcher(ledger, options.pss, options.parts);
  InstructionCounter instructions;
  EnergyCounter energy;
  RunContext context{.options = options,
                     .child = child,
                     .supervisor = supervisor,
                     .watcher = watcher,
                     .ledger = ledger,
                     .outcome = outcome,
                     .instructions = instructions,
                     .energy = energy};
  if (!dispatch(context, error)) {
    supervisor.kill_tree(SIGKILL);
    return fail(kFailed, error);
  }
  if (const int problem = child.exec_error(); problem != 0) {
    return exec_failure(options.command[0], child.path(), problem);
  }
  ledger.tick(outcome.end);
  watcher.finish();
  outcome.timed_out = supervisor.timed_out();
  outcome.instructions = instructions.read();
  outcome.energy_j = energy.joules();
  if (!options.output.empty() && !write_whole(options.output, to_json(outcome, ledger, watcher))) {
    return fail(kFailed, "cannot write " + options.output + ": " + std::strerror(errno));
  }
  return 0;
}

}  // namespace
}  // namespace heapwright::meter

int main(int argc, char** argv) {
  using namespace heapwright::meter;
  Options options;
  std::string error;
  if (!parse_options(argc, argv, options, error)) {
    return fail(kUsage, error);
  }
  if (options.probe) {
    (void)std::fputs(probe_json().c_str(), stdout);
    return 0;
  }
  return meter(options);
}
