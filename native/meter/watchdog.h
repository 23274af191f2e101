// Starts a second, tiny process that takes over if the meter itself is killed.
//
// It holds the seccomp listener too. Without a listener, watched calls would fail with ENOSYS and
// break the target. The watchdog answers them, so that the target runs on unmetered. The kernel
// does not repeat a call that the meter had received and not answered. So the meter receives every
// call into memory that both processes share, and the watchdog answers the call that it finds
// there.
//
// With --die-with-parent the watchdog kills the tree: the root and its descendants. (A daemon of
// the tree is no descendant any more; with a listener it ends at its next watched call.)
//
// The process is made with no exit signal. wait4(-1) does not see it, so the meter never waits for
// it.
#pragma once

#include <linux/seccomp.h>
#include <sys/types.h>

#include "options.h"

namespace heapwright::meter {

class Watchdog {
 public:
  Watchdog() = default;
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog();

  // Starts the watchdog.
  //
  // options   whether to die with the parent
  // listener  the seccomp listener, -1 if there is none
  // root      the root process of the tree
  //
  // Returns false with errno set if it cannot be started.
  bool start(const Options& options, int listener, pid_t root);
  // The shared memory into which the meter receives calls.
  [[nodiscard]] seccomp_notif& request() const { return *request_; }
  // The run has ended. `leave_running`: processes are left whose calls must still be answered.
  void dismiss(bool leave_running) const;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;                   // commands to the watchdog
  seccomp_notif* request_ = nullptr;  // shared with the watchdog
};

}  // namespace heapwright::meter
