// Finds out by trial which features work on this machine.
#include <linux/kcmp.h>
#include <linux/ptrace.h>
#include <linux/seccomp.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "backends.h"
#include "calls.h"
#include "cgroup.h"
#include "procfs.h"

namespace heapwright::meter {
namespace {

// Runs `attempt` in a child; it returns 0 or an errno.
template <class Attempt>
int in_child(Attempt attempt) {
  const pid_t child = fork();
  if (child == 0) {
    _exit(attempt() & 0xff);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
    return EAGAIN;
  }
  return WEXITSTATUS(status);
}

int try_notify() {
  // The child only installs the filter, and answers a call that does not exist. Its exit_group
  // would be watched, so it ends by the exit of its only thread.
  const pid_t child = fork();
  if (child == 0) {
    const auto filter = build_filter(SECCOMP_RET_USER_NOTIF);
    const int result = install_filter(filter, SECCOMP_FILTER_FLAG_NEW_LISTENER);
    const int problem = result < 0 ? errno : continue_call(result, 0);
    syscall(SYS_exit, problem == ENOENT ? 0 : problem);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) {
    return EAGAIN;
  }
  return WEXITSTATUS(status);
}

// Stops a traced child and asks for its system call. Returns 0 or an errno: EIO before Linux 5.3.
int try_syscall_info(pid_t child) {
  ptrace_syscall_info info{};
  int status = 0;
  if (syscall(SYS_ptrace, PTRACE_INTERRUPT, child, 0, 0) != 0 || waitpid(child, &status, 0) != child ||
      !WIFSTOPPED(status)) {
    return EAGAIN;
  }
  return syscall(SYS_ptrace, PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info) > 0 ? 0 : errno;
}

int try_ptrace() {
  const pid_t child = fork();
  if (child < 0) {
    return errno;  // kill(-1) below would end every process of the user
  }
  if (child == 0) {
    pause();
    _exit(0);
  }
  const long result = syscall(SYS_ptrace, PTRACE_SEIZE, child, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACESECCOMP);
  const int problem = result == 0 ? try_syscall_info(child) : errno;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return problem != 0
             ? problem
             : in_child([] { return install_filter(build_filter(SECCOMP_RET_ALLOW), 0) < 0 ? errno : 0; });
}

std::string entry(const char* name, bool works, const std::string& why) {
  std::string text = " ";
  text += quoted(name);
  text += works ? ": {\"works\": true, \"why\": " : ": {\"works\": false, \"why\": ";
  text += quoted(why);
  text += '}';
  return text;
}

}  // namespace

std::uint32_t filter_action(Backend backend) {
  switch (backend) {
    case Backend::kNotify:
      return SECCOMP_RET_USER_NOTIF;
    case Backend::kPtrace:
      return SECCOMP_RET_TRACE;
    default:
      return 0;
  }
}

bool backend_works(Backend backend, std::string& why) {
  int problem = 0;
  if (backend == Backend::kNotify) {
    problem = try_notify();
    why = problem == EBUSY ? "another seccomp listener is in place already"
          : problem == EINVAL
              ? "a seccomp listener needs Linux 5.5"
              : std::string("a seccomp listener cannot be installed: ") + std::strerror(problem);
  } else if (backend == Backend::kPtrace) {
    problem = try_ptrace();
    why = problem == EIO ? "ptrace needs Linux 5.3 (PTRACE_GET_SYSCALL_INFO)"
                         : std::string("ptrace is not permitted: ") + std::strerror(problem);
  }
  if (problem == 0) {
    why.clear();
  }
  return problem == 0;
}

std::string probe_json() {
  std::string text = "{\n";
  for (const Backend backend : {Backend::kNotify, Backend::kPtrace, Backend::kPoll}) {
    std::string why;
    const bool works = backend_works(backend, why);
    text += entry(backend_name(backend), works, why) + ",\n";
  }
  InstructionCounter instructions;
  const bool counts = instructions.open(0);
  text +=
      entry("instructions", counts, counts ? "" : std::string("perf_event_open: ") + std::strerror(errno)) +
      ",\n";
  const EnergyCounter energy;
  text +=
      entry("rapl", energy.works(), energy.works() ? "" : "no readable /sys/class/powercap/intel-rapl:0") +
      ",\n";
  const auto rollup = read_rollup(getpid());
  text += entry("smaps_rollup", rollup.has_value(), rollup ? "" : std::strerror(errno)) + ",\n";
  const auto group = memory_group(read_proc(getpid(), "cgroup"), read_proc(getpid(), "mountinfo"));
  const bool charged = group && group_usage(*group);
  text += entry("cgroup", charged, charged ? "" : "no memory cgroup can be read") + ",\n";
  const bool compares = syscall(SYS_kcmp, getpid(), getpid(), KCMP_VM, 0, 0) == 0;
  text += entry("kcmp", compares, compares ? "" : std::strerror(errno)) + "\n}\n";
  return text;
}

}  // namespace heapwright::meter
