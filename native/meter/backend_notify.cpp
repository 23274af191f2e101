// Implements the main back end: seccomp user notification, with readings at call entry. See
// backends.h.
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "backends.h"
#include "calls.h"
#include "procfs.h"
#include "watchdog.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#ifndef SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

namespace heapwright::meter {
namespace {

CallArguments call_of(const seccomp_data& data) {
  std::array<std::uint64_t, 6> arguments{};
  std::copy(std::begin(data.args), std::end(data.args), arguments.begin());
  return watched_call(data.arch, static_cast<std::uint32_t>(data.nr), arguments);
}

// Handles one notification: takes a reading and lets the call go on. Returns 0, or the errno if the
// kernel does not let it go on: the caller then waits for ever.
int answer(int listener, seccomp_notif& request, Watcher& watcher) {
  std::memset(&request, 0, sizeof request);  // the kernel requires it
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) {
    return 0;  // ENOENT: the caller was killed meanwhile
  }
  watcher.called(static_cast<pid_t>(request.pid), call_of(request.data), now());
  const int problem = continue_call(listener, request.id);
  return problem == ENOENT ? 0 : problem;
}

}  // namespace

int open_ticker(std::int64_t interval_ms) {
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  const itimerspec interval{.it_interval = {interval_ms / 1000, interval_ms % 1000 * 1000000},
                            .it_value = {interval_ms / 1000, interval_ms % 1000 * 1000000}};
  if (timer >= 0) {
    timerfd_settime(timer, 0, &interval, nullptr);
  }
  return timer;
}

bool run_notify(RunContext& context, std::string& error) {
  Supervisor& supervisor = context.supervisor;
  Watcher& watcher = context.watcher;
  if (!context.child.prepare(error)) {
    return false;
  }
  const int listener = context.child.listener();
  // Linux 6.6: the caller and the meter never run at the same time, so the kernel may wake the
  // meter on the caller's core.
  ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
  Watchdog watchdog;
  if (!watchdog.start(context.options, listener, context.child.pid())) {
    error = std::string("cannot start the watchdog process: ") + std::strerror(errno);
    return false;
  }
  supervisor.exempt(watchdog.pid());
  watcher.ignore(watchdog.pid());
  const int ticker = open_ticker(context.options.interval_ms);
  context.go();
  std::array<pollfd, 3> files{{{.fd = listener, .events = POLLIN, .revents = 0},
                               {.fd = supervisor.signals(), .events = POLLIN, .revents = 0},
                               {.fd = ticker, .events = POLLIN, .revents = 0}}};
  while (!supervisor.finished()) {
    if (poll(files.data(), files.size(), -1) < 0 && errno != EINTR) {
      break;
    }
    if ((files[0].revents & POLLIN) != 0) {
      if (const int problem = answer(listener, watchdog.request(), watcher); problem != 0) {
        error = std::string("the kernel does not let watched calls go on: ") + std::strerror(problem);
        close(ticker);
        return false;
      }
    } else if ((files[0].revents & POLLHUP) != 0) {
      files[0].fd = -1;  // the last filtered process has ended; only waitpid remains
    }
    if ((files[1].revents & POLLIN) != 0) {
      supervisor.take_signals();
      supervisor.reap(watcher, context.outcome);
    }
    std::uint64_t ticks = 0;
    if ((files[2].revents & POLLIN) != 0 && read(ticker, &ticks, sizeof ticks) > 0) {
      const double time = now();
      watcher.tick(time);
      supervisor.tick(time);
      context.tick(time);
      supervisor.reap(watcher, context.outcome);
    }
  }
  watchdog.dismiss(files[0].fd >= 0);
  close(ticker);
  return true;
}

}  // namespace heapwright::meter
