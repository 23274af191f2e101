// A second, tiny process for when the meter itself is killed.
//
// It holds the seccomp listener too: without one, watched calls would fail with ENOSYS from then on and break
// the target. The watchdog answers them instead, so that the target runs on unmetered. The call that the meter
// had taken and not yet answered is the one thing that a listener cannot ask for again; so the meter takes
// every call into memory that both share, and the watchdog answers the one that lies there.
//
// With --die-with-parent it kills the tree: the root and its descendants. (A daemon of theirs has become
// somebody else's child; with a listener it ends at its next watched call.)
//
// It is made with no exit signal: wait4(-1) does not see it, so it never keeps the meter waiting.
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

  // `listener`: -1 if there is none. False with errno set.
  bool start(const Options& options, int listener, pid_t root);
  // Where the meter takes calls into.
  [[nodiscard]] seccomp_notif& request() const { return *request_; }
  // The run has ended well. `leave_running`: processes are left that need their calls answered.
  void dismiss(bool leave_running) const;
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
  seccomp_notif* request_ = nullptr;  // shared with the watchdog
};

}  // namespace heapwright::meter
