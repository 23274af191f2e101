// Handles signals, the timeout and the ends of processes. See supervisor.h.
#include "supervisor.h"

#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <string>

#include "procfs.h"

namespace heapwright::meter {
namespace {

// The meter prints which processes it waits for this long after the end of the command.
constexpr double kWaitReportDelayS = 5;
constexpr std::array<int, 7> kTaken{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};

// Whether nohup started the meter, or something else that ignores SIGHUP.
bool ignores_hangup() {
  struct sigaction action{};
  return sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Supervisor::~Supervisor() {
  if (signals_ >= 0) {
    close(signals_);
  }
}

bool Supervisor::open(sigset_t& mask) {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int signal : kTaken) {
    sigaddset(&taken, signal);
  }
  if (ignores_hangup()) {
    sigdelset(&taken, SIGHUP);
  }
  if (sigprocmask(SIG_BLOCK, &taken, &mask) != 0) {
    return false;
  }
  signals_ = signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (options_.die_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != options_.parent) {  // the parent ended before the request took effect
      return false;
    }
  }
  return signals_ >= 0;
}

void Supervisor::started(pid_t root, double time) {
  root_ = root;
  start_ = time;
}

void Supervisor::kill_tree(int signal) const {
  for (const pid_t process : descendants_of(getpid())) {
    if (process != exempt_) {
      kill(process, signal);
    }
  }
  if (!root_dead_ && root_ > 0) {  // the kernel may not list children
    kill(root_, signal);
  }
}

void Supervisor::stop(double time, int first_signal) {
  if (!stopping_) {
    stopping_ = true;
    kill_at_ = time + (first_signal == SIGKILL ? 0 : options_.kill_grace_s);
    kill_tree(first_signal);
  }
}

void Supervisor::take_signals() {
  signalfd_siginfo info{};
  const bool orphaned = options_.die_with_parent && getppid() != options_.parent;
  const bool ends_tree = orphaned || (options_.die_with_parent && !options_.attended);
  while (read(signals_, &info, sizeof info) == sizeof info) {
    const int signal = static_cast<int>(info.ssi_signo);
    const bool forwardable = signal == SIGUSR1 || signal == SIGUSR2;
    if (signal == SIGCHLD) {
      continue;
    }
    if (ends_tree && !forwardable) {
      stop(now(), SIGKILL);
    } else if (signal == SIGINT) {
      ++interrupts_;
      if (stopping_) {
        kill_at_ = 0;  // SIGKILL at the next tick
      } else if (root_dead_) {
        enough_ = true;
      } else if (interrupts_ > 1) {
        stop(now(), SIGKILL);
      }
    } else if (root_dead_ && !forwardable) {
      stop(now(), signal);
    } else if (!root_dead_ && root_ > 0) {
      kill(root_, signal);
    }
  }
}

void Supervisor::tick(double time) {
  if (options_.timeout_s > 0 && !timed_out_ && time - start_ >= options_.timeout_s) {
    timed_out_ = true;
    stop(time, SIGTERM);
  }
  if (stopping_ && time >= kill_at_) {  // at every tick again: there may be new children
    kill_tree(SIGKILL);
  }
  const bool says = options_.attended || !options_.die_with_parent;
  if (root_dead_ && !said_ && says && time - root_end_ >= kWaitReportDelayS) {
    said_ = true;
    std::string pids;
    for (const pid_t process : descendants_of(getpid())) {
      if (process != exempt_) {
        pids += ' ';
        pids += std::to_string(process);
      }
    }
    (void)std::fprintf(
        stderr,
        "heapwright-meter: the command has ended; waiting for processes that it left running:%s (Ctrl-C "
        "stops waiting%s)\n",
        pids.c_str(),
        options_.attended ? " and gives no figures; 'measure --for TIME' ends the run and gives them" : "");
  }
}

void Supervisor::reaped(pid_t child, int status, const rusage& usage, Outcome& outcome) {
  outcome.add(usage);
  if (child == root_) {
    root_dead_ = true;
    root_end_ = now();
    outcome.status = status;
    outcome.end = root_end_;
  } else if (!options_.wait_for_root_only) {
    outcome.end = now();
  }
}

void Supervisor::reap(Watcher& watcher, Outcome& outcome) {
  int status = 0;
  rusage usage{};
  pid_t child = 0;
  while ((child = wait4(-1, &status, WNOHANG, &usage)) > 0) {
    watcher.process_ended(child, now());
    watcher.waited_for(child);
    reaped(child, status, usage, outcome);
  }
  childless_ = child < 0;
}

bool Supervisor::finished() const {
  return childless_ || enough_ || (root_dead_ && options_.wait_for_root_only && !stopping_);
}

}  // namespace heapwright::meter
