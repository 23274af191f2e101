// Supervises a run: waits for the processes, forwards signals, and stops the run. All back ends
// share it.
//
//   signal to the meter        --die-with-parent                 otherwise, or with --attended too
//   SIGINT                     the whole tree is killed          ignored, because the terminal
//                                                                sends it to the target too; a
//                                                                second one kills the tree
//   SIGTERM, SIGHUP, SIGQUIT   the whole tree is killed          passed on to the root process. Once
//                                                                that has ended: to all processes
//                                                                that it left, and SIGKILL after
//                                                                --kill-grace or at a SIGINT
//   SIGUSR1, SIGUSR2           passed on                         passed on
//
// A SIGHUP that the meter inherits as ignored (nohup) stays ignored. An inherited SIGINT does not:
// a shell ignores it for a command in the background, but heapwright cancels a run by it.
//
// With --die-with-parent the kernel sends SIGTERM when the parent has ended. Then the whole tree is
// killed, with --attended too.
//
// The meter is a child subreaper: daemons and other orphans of the tree become its children, and it
// waits for them.
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

  // Blocks the signals above and opens a descriptor that receives them. `mask` gets the inherited
  // mask.
  bool open(sigset_t& mask);
  void started(pid_t root, double time);

  // The descriptor, for poll(): readable when signals (SIGCHLD too) are pending.
  [[nodiscard]] int signals() const { return signals_; }
  // Handles pending signals; never blocks.
  void take_signals();
  // Called at every tick: checks the timeout, escalates to SIGKILL, prints what the meter still
  // waits for.
  void tick(double time);
  // Reaps dead children without blocking, for back ends that do not wait themselves.
  void reap(Watcher& watcher, Outcome& outcome);
  // A child of the meter was reaped: the root, or an orphan of the tree. (A tracer also sees the
  // death of other processes' children; their usage is part of their parents' usage and must not be
  // passed here.)
  //
  // child    its process id
  // status   as wait4 gives it
  // usage    its resources
  // outcome  gets the usage, and of the root the status
  void reaped(pid_t child, int status, const rusage& usage, Outcome& outcome);
  void no_children_left() { childless_ = true; }
  // Exempts a child of the meter that is not the target's from being killed with the tree.
  void exempt(pid_t process) { exempt_ = process; }

  // Returns true when there is nothing more to wait for.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] bool timed_out() const { return timed_out_; }
  void kill_tree(int signal) const;

 private:
  void stop(double time, int first_signal);

  const Options& options_;
  int signals_ = -1;
  pid_t root_ = -1;
  pid_t exempt_ = 0;
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
