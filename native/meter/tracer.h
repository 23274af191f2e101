// Drives ptrace and reports to a TraceListener which process made which mapping call, and which
// processes started and ended. backend_ptrace.cpp keeps the ledger from these reports.
//
// All peculiarities of ptrace are handled here:
//
//   - The first child is SEIZEd before it installs its seccomp filter: without a tracer that asked
//     for PTRACE_O_TRACESECCOMP, a SECCOMP_RET_TRACE makes the call fail with ENOSYS.
//   - SEIZE, unlike ATTACH or TRACEME, sends no SIGSTOP. It distinguishes group stops
//     (PTRACE_EVENT_STOP with a stop signal) from signals on delivery. A group stop is answered
//     with PTRACE_LISTEN, so that job control works in the target; a signal is passed on.
//   - A new process or thread can stop before the event of its parent is seen. It waits, stopped,
//     for that event, so that listeners learn of a process before it makes calls. If the event
//     never comes, because the parent was killed, /proc is read after two ticks.
//   - After an exec by a thread that is not the leader, that thread continues under the leader's
//     id. The other threads are gone, and the kernel reports nothing about the former id.
//   - Every request may find its task killed (ESRCH). That is no error: wait4 reports the death.
//   - A timer interrupts wait4 for the 10 ms tick. If its signal arrives just before wait4 blocks,
//     the next tick interrupts it; so nothing here waits longer than that.
//
// If the meter dies, even by SIGKILL, PTRACE_O_EXITKILL kills all tracees. Otherwise the target
// would hang, or its mapping calls would fail.
//
// Invariants: every task is in tasks_ from its first stop or its parent's event to its death; a
// task is 'waiting' iff it is stopped and its parent's event has not come; process ids are
// thread-group leaders' ids. One thread only: ptrace works only for the thread that seized.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <map>

namespace heapwright::meter {

// A stopped system call, of whatever architecture the target is.
struct TracedCall {
  std::uint32_t arch = 0;  // AUDIT_ARCH_*
  std::uint64_t number = 0;
  std::array<std::uint64_t, 6> arguments{};
};

class TraceListener {
 public:
  TraceListener() = default;
  TraceListener(const TraceListener&) = delete;
  TraceListener& operator=(const TraceListener&) = delete;
  virtual ~TraceListener() = default;

  enum class Resume : std::uint8_t {
    kRun,        // resume until the next event
    kStopAtEnd,  // resume, and call returned() when the system call ends
    kHold,       // leave it stopped until Tracer::release()
  };
  virtual void created(pid_t process, pid_t parent, bool shares_memory) = 0;
  // A thread is at the entry of a watched call. Returns how to resume it.
  virtual Resume called(pid_t process, pid_t thread, const TracedCall& call) = 0;
  // The call has returned, after kStopAtEnd.
  virtual void returned(pid_t process, pid_t thread) = 0;
  virtual void executed(pid_t process) = 0;
  // A thread is about to end; its memory still exists. `last`: the process ends with it, or by a
  // signal.
  virtual void exiting(pid_t process, pid_t thread, bool last) = 0;
  virtual void thread_gone(pid_t process, pid_t thread) = 0;
  // A process has ended, with the wait status and the usage of wait4. Comes after thread_gone of
  // its leader, which is its last thread. It comes a second time for a dead process that the meter
  // inherits because its parent never waited for it.
  virtual void process_ended(pid_t process, int status, const rusage& usage) = 0;
};

class Tracer {
 public:
  explicit Tracer(TraceListener& listener) : listener_(listener) {}

  // Seizes a child that has not installed its filter yet. Returns false with errno set if that
  // fails.
  bool seize(pid_t child);

  // Waits for one stop or death and handles it. kInterrupted: a signal came first.
  enum class Step : std::uint8_t { kHandled, kInterrupted, kNoTasks };
  Step step();

  // Called at every tick: resumes tasks that wait for an event that does not come.
  void tick();

  [[nodiscard]] bool empty() const { return tasks_.empty(); }

  // Resumes a thread that called() held.
  void release(pid_t thread, bool stop_at_end);

  // In called() and returned(): replaces an argument of the call. The register keeps the value, so
  // the caller restores it in returned(). Returns false if that cannot be done here.
  //
  // thread  the stopped thread
  // index   0 to 5
  // value   the new value
  static bool set_argument(pid_t thread, unsigned index, std::uint64_t value);

  // In returned(): what the call returned; false if it failed.
  static bool result(pid_t thread, std::uint64_t& value);

 private:
  struct Task {
    pid_t process = 0;
    bool waiting = false;  // stopped until created
    bool known = false;    // its parent's event was seen
    int ticks = 0;         // while waiting
  };

  void stopped(pid_t tid, int status);
  void event(pid_t tid, Task& task, unsigned event);
  void exit_event(pid_t tid, pid_t process);
  void child_event(pid_t parent, unsigned event);
  void exec_event(pid_t process);
  void introduce(pid_t tid, Task& task, pid_t process, pid_t parent, bool shares_memory);
  void died(pid_t tid, int status, const rusage& usage);

  TraceListener& listener_;
  std::map<pid_t, Task> tasks_;
};

}  // namespace heapwright::meter
