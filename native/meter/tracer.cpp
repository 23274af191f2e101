// Drives ptrace; tracer.h lists its peculiarities.
#include "tracer.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/kcmp.h>
#include <linux/ptrace.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): POSIX names
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace heapwright::meter {
namespace {

constexpr int kSyscallStop = SIGTRAP | 0x80;
constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE |
                          PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEEXIT |
                          PTRACE_O_EXITKILL;
// A task that stops before its parent's event waits this long for the event.
constexpr int kParentEventTimeoutTicks = 2;

// Calls ptrace with the kernel's own signature. ESRCH means that the task was killed; wait4 reports
// that.
//
// what  PTRACE_*
// tid   the task
// data  the last argument
long request(int what, pid_t tid, std::uintptr_t data) { return syscall(SYS_ptrace, what, tid, 0, data); }

pid_t event_message(pid_t tid) {
  unsigned long message = 0;
  request(PTRACE_GETEVENTMSG, tid, reinterpret_cast<std::uintptr_t>(&message));
  return static_cast<pid_t>(message);
}

// Returns the thread group of a task, or 0.
pid_t group_of(pid_t tid) {
  std::array<char, 64> path{};
  std::array<char, 1024> text{};
  (void)std::snprintf(path.data(), path.size(), "/proc/%d/status", tid);
  const int file = open(path.data(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return 0;
  }
  const ssize_t size = read(file, text.data(), text.size() - 1);
  close(file);
  const char* const field = size > 0 ? std::strstr(text.data(), "\nTgid:") : nullptr;
  return field == nullptr ? 0 : static_cast<pid_t>(std::strtol(field + 6, nullptr, 10));
}

bool same_memory(pid_t one, pid_t other) { return syscall(SYS_kcmp, one, other, KCMP_VM, 0, 0) == 0; }

bool syscall_info(pid_t tid, ptrace_syscall_info& info) {
  return syscall(SYS_ptrace, PTRACE_GET_SYSCALL_INFO, tid, sizeof info, &info) > 0;
}

// Returns the stopped call of a task; empty before Linux 5.3, or if the task was killed.
TracedCall traced_call(pid_t tid) {
  TracedCall call;
  ptrace_syscall_info info{};
  if (syscall_info(tid, info) && info.op == PTRACE_SYSCALL_INFO_SECCOMP) {
    call.arch = info.arch;
    call.number = info.seccomp.nr;
    std::copy_n(static_cast<const __u64*>(info.seccomp.args), call.arguments.size(), call.arguments.begin());
  }
  return call;
}

bool is_stop_signal(int signal) {
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

}  // namespace

bool Tracer::seize(pid_t child) {
  if (request(PTRACE_SEIZE, child, static_cast<std::uintptr_t>(kOptions)) != 0) {
    return false;
  }
  Task& task = tasks_[child];
  task.process = child;
  task.known = true;
  return true;
}

Tracer::Step Tracer::step() {
  int status = 0;
  rusage usage{};
  const pid_t tid = wait4(-1, &status, __WALL, &usage);
  if (tid < 0) {
    return errno == EINTR ? Step::kInterrupted : Step::kNoTasks;
  }
  if (WIFSTOPPED(status)) {
    stopped(tid, status);
  } else {
    died(tid, status, usage);
  }
  return Step::kHandled;
}

void Tracer::stopped(pid_t tid, int status) {
  Task& task = tasks_[tid];
  const int signal = WSTOPSIG(status);
  const unsigned event_number = static_cast<unsigned>(status) >> 16U;
  if (!task.known) {  // the event of its parent has not come yet
    task.waiting = true;
    task.ticks = 0;
  } else if (event_number == PTRACE_EVENT_STOP && is_stop_signal(signal)) {
    request(PTRACE_LISTEN, tid, 0);
  } else if (event_number == PTRACE_EVENT_STOP) {
    request(PTRACE_CONT, tid, 0);
  } else if (event_number != 0) {
    event(tid, task, event_number);
  } else if (signal == kSyscallStop) {
    listener_.returned(task.process, tid);
    request(PTRACE_CONT, tid, 0);
  } else {
    request(PTRACE_CONT, tid, static_cast<std::uintptr_t>(signal));
  }
}

void Tracer::event(pid_t tid, Task& task, unsigned event) {
  switch (event) {
    case PTRACE_EVENT_SECCOMP: {
      const auto resume = listener_.called(task.process, tid, traced_call(tid));
      if (resume != TraceListener::Resume::kHold) {
        release(tid, resume == TraceListener::Resume::kStopAtEnd);
      }
      return;
    }
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
      child_event(tid, event);
      break;
    case PTRACE_EVENT_EXEC:
      exec_event(tid);
      break;
    case PTRACE_EVENT_EXIT:
      exit_event(tid, task.process);
      break;
    default:
      break;
  }
  request(PTRACE_CONT, tid, 0);
}

void Tracer::exit_event(pid_t tid, pid_t process) {
  const auto threads = std::count_if(
      tasks_.begin(), tasks_.end(), [process](const auto& entry) { return entry.second.process == process; });
  const bool by_signal = WIFSIGNALED(event_message(tid));
  listener_.exiting(process, tid, threads <= 1 || by_signal);
}

void Tracer::release(pid_t thread, bool stop_at_end) {
  request(stop_at_end ? PTRACE_SYSCALL : PTRACE_CONT, thread, 0);
}

void Tracer::child_event(pid_t parent, unsigned event) {
  const pid_t child = event_message(parent);
  if (child <= 0) {
    return;
  }
  const pid_t parent_process = tasks_[parent].process;
  pid_t process = child;
  if (event == PTRACE_EVENT_CLONE && group_of(child) == parent_process) {
    process = parent_process;
  }
  const bool shares = event == PTRACE_EVENT_VFORK || same_memory(parent, child);
  introduce(child, tasks_[child], process, parent_process, shares);
}

void Tracer::introduce(pid_t tid, Task& task, pid_t process, pid_t parent, bool shares_memory) {
  task.process = process;
  task.known = true;
  if (process == tid) {
    listener_.created(process, parent, shares_memory);
  }
  if (task.waiting) {
    task.waiting = false;
    request(PTRACE_CONT, tid, 0);
  }
}

void Tracer::exec_event(pid_t process) {
  const pid_t former = event_message(process);
  if (former > 0 && former != process) {
    tasks_.erase(former);
  }
  listener_.executed(process);
}

void Tracer::died(pid_t tid, int status, const rusage& usage) {
  const auto found = tasks_.find(tid);
  const pid_t process = found == tasks_.end() ? tid : found->second.process;
  if (found != tasks_.end()) {
    tasks_.erase(found);
    listener_.thread_gone(process, tid);
  }
  if (process == tid) {
    listener_.process_ended(process, status, usage);
  }
}

void Tracer::tick() {
  for (auto& [tid, task] : tasks_) {
    if (task.waiting && ++task.ticks >= kParentEventTimeoutTicks) {
      const pid_t group = group_of(tid);
      introduce(tid, task, group == 0 ? tid : group, 0, false);
    }
  }
}

bool Tracer::set_argument([[maybe_unused]] pid_t thread, [[maybe_unused]] unsigned index,
                          [[maybe_unused]] std::uint64_t value) {
#ifdef __x86_64__
  constexpr std::array<std::size_t, 6> kRegisters = {
      offsetof(user_regs_struct, rdi), offsetof(user_regs_struct, rsi), offsetof(user_regs_struct, rdx),
      offsetof(user_regs_struct, r10), offsetof(user_regs_struct, r8),  offsetof(user_regs_struct, r9)};
  return syscall(SYS_ptrace, PTRACE_POKEUSR, thread, offsetof(user, regs) + kRegisters.at(index), value) == 0;
#else
  return false;
#endif
}

bool Tracer::result(pid_t thread, std::uint64_t& value) {
  ptrace_syscall_info info{};
  if (!syscall_info(thread, info) || info.op != PTRACE_SYSCALL_INFO_EXIT || info.exit.is_error != 0) {
    return false;
  }
  value = static_cast<std::uint64_t>(info.exit.rval);
  if (info.arch == AUDIT_ARCH_I386) {
    value &= UINT32_MAX;
  }
  return true;
}

}  // namespace heapwright::meter
