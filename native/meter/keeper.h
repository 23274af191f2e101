// A second, tiny process that holds the seccomp listener too. If the meter dies, watched calls would fail
// with ENOSYS from then on and break the target; the keeper answers them instead, so that the target runs on
// unmetered. With --die-with-parent it kills the tree.
//
// It is made with no exit signal: wait4(-1) does not see it, so it never keeps the meter waiting.
#pragma once

#include <sys/types.h>

#include "options.h"

namespace heapwright::meter {

class Keeper {
 public:
  Keeper() = default;
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
  ~Keeper();

  bool start(const Options& options, int listener, pid_t root);
  // The run has ended well. `leave_running`: processes are left that need their calls answered.
  void dismiss(bool leave_running);
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
};

}  // namespace heapwright::meter
