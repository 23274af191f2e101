// Starts the target, by fork from this small static process: the ru_maxrss of a child starts at the
// size of the process that it was forked from.
//
// The child waits at a socket until the parent has attached its counters and its tracer, and is
// then released. The target inherits nothing from the meter: descriptors close on exec, and it gets
// the signal mask and handlers that the meter inherited.
#pragma once

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigset_t
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"

namespace heapwright::meter {

class Spawned {
 public:
  Spawned() = default;
  Spawned(const Spawned&) = delete;
  Spawned& operator=(const Spawned&) = delete;
  ~Spawned();

  // Forks the child, which waits. It installs the filter when `prepare` lets it, so that a tracer
  // can seize it first.
  //
  // options        the command
  // filter_action  the SECCOMP_RET_* for watched calls, 0 for no filter
  // mask           the signal mask of the target
  // error          gets one line if it fails
  //
  // Returns 0, or the status with which the meter exits.
  int fork_child(const Options& options, std::uint32_t filter_action, const sigset_t& mask,
                 std::string& error);
  // Lets the child install its filter, and receives the listener if the action is
  // SECCOMP_RET_USER_NOTIF.
  bool prepare(std::string& error);
  // Lets the child exec.
  void release();
  // Returns, after the child ended, the errno of its failed exec, or 0.
  int exec_error();

  [[nodiscard]] pid_t pid() const { return pid_; }
  // The file of the program that the child runs.
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int listener() const { return listener_; }

 private:
  [[noreturn]] void child(const Options& options, std::uint32_t filter_action, const sigset_t& mask,
                          pid_t parent) const;

  pid_t pid_ = -1;
  std::uint32_t action_ = 0;
  int socket_ = -1;  // parent's end: orders to the child, its answers and the listener back
  int child_socket_ = -1;
  int listener_ = -1;
  std::string path_;
};

// Returns the path of a command's program, found as execvp finds it; empty with errno set if it
// is not found.
std::string find_program(const char* name);

}  // namespace heapwright::meter
