// Implements the ptrace back end: it uses the filter of notify, but calls stop for a tracer
// (tracer.h), and with --massif-compat they stop again at their end (massif_tracker.h). See
// backends.h.
//
// Unlike notify, it sees each new process at its start, and reads the memory of a process that a
// signal ends just before the end.
//
// Without a tracer the filtered calls fail with ENOSYS, so running processes cannot be released.
// Processes that outlive the measurement (--wait root, or a Ctrl-C while waiting for them) are
// killed, and so are all processes if the meter dies (PTRACE_O_EXITKILL).
//
// Waiting: wait4 blocks, and a timer's SIGALRM interrupts it for ticks and for the signals that the
// supervisor receives by descriptor. Such a signal waits for at most kWakeMs.
//
// Invariants: parents_ has the live processes and the dead ones that the meter has not reaped yet.
#include <linux/audit.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction is POSIX
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>

#include "backends.h"
#include "calls.h"
#include "massif_tracker.h"
#include "procfs.h"
#include "tracer.h"

namespace heapwright::meter {
namespace {

constexpr std::int64_t kWakeMs = 50;

void ignore_signal(int /*signal*/) {}

// Sends SIGALRM periodically, only to interrupt wait4.
class Waker {
 public:
  explicit Waker(std::int64_t interval_ms) {
    struct sigaction action{};
    action.sa_handler = ignore_signal;  // no SA_RESTART
    sigaction(SIGALRM, &action, nullptr);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarm, nullptr);
    set(std::min(interval_ms, kWakeMs) * 1000);
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  ~Waker() { set(0); }

 private:
  static void set(std::int64_t microseconds) {
    const itimerval interval{.it_interval = {0, microseconds}, .it_value = {0, microseconds}};
    setitimer(ITIMER_REAL, &interval, nullptr);
  }
};

class PtraceRun : public TraceListener {
 public:
  explicit PtraceRun(RunContext& context)
      : context_(context),
        tracer_(*this),
        massif_(tracer_, static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE))),
        root_(context.child.pid()) {}

  bool start(std::string& error) {
    if (!tracer_.seize(root_)) {
      error = std::string("cannot trace the command: ") + std::strerror(errno);
      return false;
    }
    parents_[root_] = getpid();
    return context_.child.prepare(error);
  }

  void run() {
    const Waker waker(context_.options.interval_ms);
    const double interval = static_cast<double>(context_.options.interval_ms) / 1000;
    context_.go();
    double next_tick = now() + interval;
    while (!context_.supervisor.finished()) {
      const Tracer::Step step = tracer_.step();
      if (step == Tracer::Step::kNoTasks) {
        context_.supervisor.no_children_left();
      } else if (step == Tracer::Step::kInterrupted) {
        const double time = now();
        context_.supervisor.take_signals();
        if (time >= next_tick) {
          tick(time);
          next_tick = std::max(next_tick + interval, time);
        }
      }
    }
    if (!tracer_.empty()) {
      (void)std::fputs(
          "heapwright-meter: under ptrace no process can be left running: killing those that the command "
          "left\n",
          stderr);
      context_.supervisor.kill_tree(SIGKILL);
    }
    if (context_.options.massif) {
      context_.outcome.massif_peak = massif_.peak();
      if (context_.options.massif_as_valgrind && !massif_.as_under_valgrind()) {
        context_.outcome.warnings.insert(
            "brk or mappings are not where Valgrind would place them: the Massif peak may differ; "
            "measure it by --massif valgrind");
      }
    }
  }

  void created(pid_t process, pid_t parent, bool shares_memory) override {
    parents_[process] = parent;
    context_.watcher.adopt(process, shares_memory);
  }

  Resume called(pid_t process, pid_t thread, const TracedCall& call) override {
    CallArguments arguments = watched_call(call.arch, call.number, call.arguments);
    if (arguments.call == Call::kOwnListener) {  // works together with a tracer
      context_.outcome.warnings.insert(
          "the program installs a seccomp listener of its own: mapping calls that it watches are not seen");
      arguments.call = Call::kNone;
    }
    context_.watcher.called(thread, arguments, now());
    return follows(process)
               ? massif_.called(thread, arguments,
                                context_.options.massif_as_valgrind && call.arch == AUDIT_ARCH_X86_64)
               : Resume::kRun;
  }

  void returned(pid_t process, pid_t thread) override {
    if (follows(process)) {
      massif_.returned(thread);
    }
  }

  void executed(pid_t process) override {
    context_.watcher.executed(process);
    if (follows(process)) {
      massif_.executed(process);
    }
  }

  // The last reading, as at exit_group: a process that a signal ends makes no call.
  void exiting(pid_t /*process*/, pid_t thread, bool last) override {
    if (last) {
      CallArguments exit;
      exit.call = Call::kExit;
      context_.watcher.called(thread, exit, now());
    }
  }

  void thread_gone(pid_t process, pid_t thread) override {
    if (follows(process)) {
      massif_.ended(thread);
    }
  }

  void process_ended(pid_t process, int status, const rusage& usage) override {
    context_.watcher.process_ended(process, now());
    if (is_ours(process)) {
      context_.supervisor.reaped(process, status, usage, context_.outcome);
    } else if (const auto found = context_.watcher.unwaited().find(process);
               found != context_.watcher.unwaited().end()) {
      context_.outcome.add(usage);
      context_.outcome.warnings.insert(whole_run_only(found->second.parent_name));
    }
    context_.watcher.waited_for(process);
    parents_.erase(process);
  }

 private:
  [[nodiscard]] bool follows(pid_t process) const { return context_.options.massif && process == root_; }

  // A tracer learns of every death, but the usage of a process goes to its parent if the parent
  // waits for it. The meter, as the subreaper, gets the usage of processes that have lost their
  // parent, even if the parent's death is not reaped yet, and of processes whose death is reported
  // a second time.
  [[nodiscard]] bool is_ours(pid_t process) const {
    const auto found = parents_.find(process);
    const pid_t parent = found == parents_.end() ? 0 : found->second;
    if (parent == getpid() || !parents_.contains(parent)) {
      return true;
    }
    siginfo_t info{};
    const bool reported =
        waitid(P_PID, static_cast<id_t>(parent), &info, WEXITED | WNOWAIT | WNOHANG | __WALL) == 0 &&
        info.si_pid == parent;
    // A tracer also gets the stops of its tracees here, such as that of a parent that receives
    // SIGCHLD.
    return reported && info.si_code != CLD_TRAPPED && info.si_code != CLD_STOPPED;
  }

  void tick(double time) {
    tracer_.tick();
    massif_.tick();
    context_.watcher.tick(time);
    context_.supervisor.tick(time);
    context_.tick(time);
  }

  RunContext& context_;
  Tracer tracer_;
  MassifTracker massif_;
  pid_t root_;
  std::map<pid_t, pid_t> parents_;  // process → its parent
};

}  // namespace

bool run_ptrace(RunContext& context, std::string& error) {
  PtraceRun run(context);
  if (!run.start(error)) {
    return false;
  }
  run.run();
  return true;
}

}  // namespace heapwright::meter
