// Starts the target. By fork from this small static process, because a child's ru_maxrss starts at the size
// of what it was forked from.
//
// The child is prepared, held at a pipe until the parent has attached what it must (counters, tracer), then
// released. Nothing of ours reaches the target: descriptors close on exec, signal mask and handlers are the
// inherited ones.
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

  // Forks the child; it waits. `filter_action`: a SECCOMP_RET_* to watch calls with, 0 for no filter.
  // The child installs the filter when `prepare` lets it, so a tracer can seize it first.
  // 0, or the status to exit with and one line in `error`.
  int fork_child(const Options& options, std::uint32_t filter_action, const sigset_t& mask,
                 std::string& error);
  // Lets the child install its filter and takes the listener (SECCOMP_RET_USER_NOTIF), or -1.
  bool prepare(std::string& error);
  // Lets the child exec.
  void release();
  // After the child ended: the errno of its failed exec, or 0.
  int exec_error();

  [[nodiscard]] pid_t pid() const { return pid_; }
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

// The program a command names, as execvp would find it; empty with errno set.
std::string find_program(const char* name);

}  // namespace heapwright::meter
