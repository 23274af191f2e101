// Implements the back end that polls, which works everywhere, and the one that only waits. See
// backends.h.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "backends.h"
#include "procfs.h"
#include "watchdog.h"

namespace heapwright::meter {

bool run_poll(RunContext& context, std::string& error) {
  Supervisor& supervisor = context.supervisor;
  if (!context.child.prepare(error)) {
    return false;
  }
  Watchdog watchdog;
  if (context.options.die_with_parent) {
    if (!watchdog.start(context.options, -1, context.child.pid())) {
      error = std::string("cannot start the watchdog process: ") + std::strerror(errno);
      return false;
    }
    supervisor.exempt(watchdog.pid());
    context.watcher.ignore(watchdog.pid());
  }
  const bool reads = context.outcome.backend != Backend::kNone;
  const int ticker = open_ticker(reads ? context.options.interval_ms : 1000);
  context.go();
  std::array<pollfd, 2> files{{{.fd = supervisor.signals(), .events = POLLIN, .revents = 0},
                               {.fd = ticker, .events = POLLIN, .revents = 0}}};
  while (!supervisor.finished()) {
    if (poll(files.data(), files.size(), -1) < 0 && errno != EINTR) {
      break;
    }
    if ((files[0].revents & POLLIN) != 0) {
      supervisor.take_signals();
    }
    std::uint64_t ticks = 0;
    if ((files[1].revents & POLLIN) != 0 && read(ticker, &ticks, sizeof ticks) > 0) {
      const double time = now();
      if (reads) {
        context.watcher.tick(time);
      }
      supervisor.tick(time);
      context.tick(time);
    }
    supervisor.reap(context.watcher, context.outcome);
  }
  watchdog.dismiss(false);
  close(ticker);
  return true;
}

bool run_none(RunContext& context, std::string& error) { return run_poll(context, error); }

}  // namespace heapwright::meter
