// The life of a run: who is waited for, which signals go where, when it is stopped. Shared by all back ends.
//
//   signal to the meter        own target (--die-with-parent)    else
//   SIGINT                     the whole tree is killed          left to the target, which has it from the
//                                                                terminal too; the second kills the tree
//   SIGTERM, SIGHUP, SIGQUIT   the whole tree is killed          passed on to the root process
//   SIGUSR1, SIGUSR2           passed on                         passed on
//
// The meter is a child subreaper: daemons and other orphans of the tree become its children and are waited
// for.
#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigset_t
#include <sys/types.h>

#include "options.h"
#include "outcome.h"
#include "watcher.h"

namespace heapwright::meter {

class Supervisor {
 public:
  explicit Supervisor(const Options& options) : options_(options) {}
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;
  ~Supervisor();

  // Blocks the signals above and takes them by descriptor. `mask` gets the inherited mask.
  bool open(sigset_t& mask);
  void started(pid_t root, double time);

  // For poll(): readable when signals (SIGCHLD too) are pending.
  [[nodiscard]] int signals() const { return signals_; }
  // Takes pending signals; never blocks.
  void take_signals();
  // Every tick: timeout, escalation, the word about who is still waited for.
  void tick(double time);
  // Waits for dead children without blocking. For back ends that do not wait themselves.
  void reap(Watcher& watcher, Outcome& outcome);
  // A child of OURS was waited for: the root, or an orphan that became ours. (A tracer also sees others'
  // children die; their usage is in their parents' and must not come here.)
  void buried(pid_t child, int status, const rusage& usage, Outcome& outcome);
  void no_children_left() { childless_ = true; }
  // Processes that are ours and not the target's: not to be killed with it.
  void spare(pid_t process) { spared_ = process; }

  // True when there is nothing more to wait for.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] bool timed_out() const { return timed_out_; }
  void kill_tree(int signal) const;

 private:
  void stop(double time, int first_signal);

  const Options& options_;
  int signals_ = -1;
  pid_t root_ = -1;
  pid_t spared_ = 0;
  double start_ = 0;
  double root_end_ = 0;
  double kill_at_ = 0;  // when stopping: SIGKILL from then on
  bool root_dead_ = false;
  bool childless_ = false;
  bool timed_out_ = false;
  bool stopping_ = false;
  bool enough_ = false;  // the user does not want to wait for background processes
  bool said_ = false;
  int interrupts_ = 0;
};

}  // namespace heapwright::meter
