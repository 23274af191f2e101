// Tests the trial of the back ends where this process cannot fork, and on older kernels.
#include <gtest/gtest.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

#include "backends.h"
#include "calls.h"

namespace heapwright::meter {
namespace {

// Returns a filter under which this process cannot fork, as at its limit of processes. A signal to
// all processes, kill(-1), ends this process before it is sent.
std::vector<sock_filter> filter_without_fork() {
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : {
           SYS_clone,
           SYS_clone3,
#ifdef SYS_fork
           SYS_fork,
           SYS_vfork,
#endif
       }) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN));
  }
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 0, 3));
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 0, 1));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

TEST(BackendWorks, KillsNoOtherProcessIfItCannotFork) {
  const pid_t child = fork();
  if (child == 0) {
    if (install_filter(filter_without_fork(), 0) != 0 || fork() != -1) {
      _exit(2);
    }
    for (const Backend backend : {Backend::kNotify, Backend::kPtrace}) {
      std::string why;
      if (backend_works(backend, why) || why.empty()) {
        _exit(3);
      }
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status)) << "it would have killed all processes";
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

// Returns a filter under which one system call fails if an argument has this value, as on an older
// kernel.
//
// call   its number
// index  of the argument
// value  of the argument
// error  the errno
std::vector<sock_filter> filter_that_fails(long call, std::size_t index, std::uint64_t value,
                                           unsigned error) {
  const auto argument =
      static_cast<std::uint32_t>(offsetof(seccomp_data, args) + index * sizeof(std::uint64_t));
  return {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 3),
          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(value), 0, 1),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
}

// Listeners of Linux 5.0 to 5.4 cannot let a call go on.
std::vector<sock_filter> filter_of_linux_5_4() {
  return filter_that_fails(SYS_ioctl, 1, SECCOMP_IOCTL_NOTIF_SEND, EINVAL);
}

// Runs `what` in a child under a filter; returns its result, or -1 if it ended by a signal.
template <class What>
int under_filter(const std::vector<sock_filter>& filter, What what) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(install_filter(filter, 0) != 0 ? 100 : what());
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Returns 0 if a back end does not work, and the reason names this version of Linux.
int needs_linux(Backend backend, const std::string& version) {
  std::string why;
  const bool works = backend_works(backend, why);
  return works ? 1 : why.find("needs Linux " + version) == std::string::npos ? 2 : 0;
}

TEST(BackendWorks, AListenerThatCannotLetACallGoOnDoesNot) {
  EXPECT_EQ(under_filter(filter_of_linux_5_4(), [] { return needs_linux(Backend::kNotify, "5.5"); }), 0);
}

TEST(BackendWorks, ATracerThatCannotReadACallDoesNot) {
  const auto filter = filter_that_fails(SYS_ptrace, 0, PTRACE_GET_SYSCALL_INFO, EIO);
  EXPECT_EQ(under_filter(filter, [] { return needs_linux(Backend::kPtrace, "5.3"); }), 0);
}

TEST(RunNotify, ARunWhoseCallsCannotGoOnFails) {
  EXPECT_EQ(under_filter(filter_of_linux_5_4(),
                         [] {
                           std::array<char*, 2> command{const_cast<char*>("/bin/true"), nullptr};
                           Options options;
                           options.command.assign(command.begin(), command.end());
                           Supervisor supervisor(options);
                           sigset_t mask;
                           Spawned child;
                           Ledger ledger;
                           Watcher watcher(ledger);
                           Outcome outcome;
                           InstructionCounter instructions;
                           EnergyCounter energy;
                           std::string error;
                           if (!supervisor.open(mask) ||
                               child.fork_child(options, filter_action(Backend::kNotify), mask, error) != 0) {
                             return 2;
                           }
                           RunContext context{.options = options,
                                              .child = child,
                                              .supervisor = supervisor,
                                              .watcher = watcher,
                                              .ledger = ledger,
                                              .outcome = outcome,
                                              .instructions = instructions,
                                              .energy = energy};
                           const bool ran = run_notify(context, error);
                           supervisor.kill_tree(SIGKILL);
                           return ran ? 3 : error.find("go on") == std::string::npos ? 4 : 0;
                         }),
            0);
}

}  // namespace
}  // namespace heapwright::meter
