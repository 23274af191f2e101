// The mechanics of ptrace, with the meaning left to a TraceListener: which process made which mapping call,
// which processes came and went. backend_ptrace.cpp keeps the ledger from it.
//
// Why so: a tracer is mostly traps. They are kept here, together:
//
//   - the first child is SEIZEd before it installs its seccomp filter: a SECCOMP_RET_TRACE without a tracer
//   that
//     asked for PTRACE_O_TRACESECCOMP makes the call fail with ENOSYS;
//   - SEIZE, unlike ATTACH or TRACEME, sends no SIGSTOP and tells group stops (PTRACE_EVENT_STOP with a stop
//   signal,
//     answered with PTRACE_LISTEN, so that job control works in the target) from signals on delivery (passed
//     on);
//   - a new process or thread can stop before its parent's event is seen: it waits, stopped, for that event,
//   so that
//     listeners hear of a process before it makes calls. Should the event never come (the parent was killed
//     on the spot), /proc answers after two ticks;
//   - after an exec by a thread that is not the leader, that thread goes on under the leader's id and the
//   others are
//     gone, the former id without a word;
//   - every request may find its task killed (ESRCH): that is no error, the death is reported by wait4;
//   - wait4 is interrupted by a timer for the 10 ms tick. A signal that comes just before it blocks is seen
//   at the
//     next tick; so nothing here waits longer than that.
//
// If the meter dies, even by SIGKILL, PTRACE_O_EXITKILL kills all tracees: the target is not left hanging,
// nor running with mapping calls that fail.
//
// Invariants: every task is in tasks_ from its first stop or its parent's event to its death; a task is
// 'waiting' iff it is stopped and its parent's event has not come; process ids are thread-group leaders' ids.
// Threads: one; ptrace belongs to the thread that seized.
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
    kRun,        // on, to the next event
    kStopAtEnd,  // on, and call returned() when the system call ends
    kHold,       // leave it stopped until Tracer::release()
  };
  virtual void created(pid_t process, pid_t parent, bool shares_memory) = 0;
  // Before the call is made.
  virtual Resume called(pid_t process, pid_t thread, const TracedCall& call) = 0;
  // After it, for kStopAtEnd.
  virtual void returned(pid_t process, pid_t thread) = 0;
  virtual void executed(pid_t process) = 0;
  // A thread is about to end; its memory is still there. `last`: the process ends with it, or by a signal.
  virtual void exiting(pid_t process, pid_t thread, bool last) = 0;
  virtual void thread_gone(pid_t process, pid_t thread) = 0;
  // After thread_gone of its leader, which is its last. Also, again, for a dead process that we inherit
  // because its parent never waited for it.
  virtual void gone(pid_t process, int status, const rusage& usage) = 0;
};

class Tracer {
 public:
  explicit Tracer(TraceListener& listener) : listener_(listener) {}

  // Takes a child that has not installed its filter yet. Returns false with errno set.
  bool seize(pid_t child);

  // Waits for one stop or death and handles it. kInterrupted: a signal came first.
  enum class Step : std::uint8_t { kHandled, kInterrupted, kNoTasks };
  Step step();

  // To be called every tick: lets tasks go that wait for an event that does not come.
  void tick();

  [[nodiscard]] bool empty() const { return tasks_.empty(); }

  // Resumes a thread that called() held.
  void release(pid_t thread, bool stop_at_end);

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
