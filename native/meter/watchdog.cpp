// Runs the watchdog's process, and starts and dismisses it. See watchdog.h.
#include "watchdog.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <vector>

#include "calls.h"
#include "procfs.h"

namespace heapwright::meter {
namespace {

// Commands from the meter.
constexpr char kEndCommand = 'q';    // end at once
constexpr char kServeCommand = 'c';  // answer calls until the last filtered process has ended

// Answers every call until the last filtered process has ended.
void serve(int listener, bool kill_callers) {
  pollfd poll_listener{.fd = listener, .events = POLLIN, .revents = 0};
  while (true) {
    if (poll(&poll_listener, 1, -1) < 0 && errno != EINTR) {
      return;
    }
    if ((poll_listener.revents & POLLHUP) != 0) {
      return;
    }
    if ((poll_listener.revents & POLLIN) == 0) {
      continue;
    }
    seccomp_notif request{};
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) {
      continue;
    }
    if (kill_callers) {
      kill(static_cast<pid_t>(request.pid), SIGKILL);
    }
    (void)continue_call(listener, request.id);
  }
}

// Kills the root, if its id still means the same process, and its descendants. Stops each process
// first: a stopped process makes no children, so none is missed.
void kill_tree(int root_file, pid_t root) {
  if (root_file >= 0 && syscall(SYS_pidfd_send_signal, root_file, SIGSTOP, nullptr, 0) != 0) {
    return;
  }
  std::set<pid_t> all{root};
  kill(root, SIGSTOP);
  for (bool more = true; more;) {
    more = false;
    for (const pid_t process : descendants_of(root)) {
      if (all.insert(process).second) {
        kill(process, SIGSTOP);
        more = true;
      }
    }
  }
  for (const pid_t process : all) {
    kill(process, SIGKILL);
  }
}

// Closes all descriptors but 0, 1 and 2. The kernel has close_range since Linux 5.9, and old
// container runtimes forbid it.
void close_other_files() {
  if (syscall(SYS_close_range, 3U, ~0U, 0U) == 0) {
    return;
  }
  std::vector<int> files;
  if (DIR* const folder = opendir("/proc/self/fd"); folder != nullptr) {
    while (const dirent* const entry = readdir(folder)) {
      files.push_back(static_cast<int>(std::strtol(entry->d_name, nullptr, 10)));
    }
    closedir(folder);
  }
  for (const int file : files) {
    if (file > 2) {
      close(file);
    }
  }
}

// The watchdog's process: waits for a command, or for the end of the meter.
//
// options    whether to kill the tree if the meter has died
// listener   the seccomp listener, -1 if there is none
// socket     the watchdog's end of the pair; it reads 0 bytes once the meter has died
// root       the root process of the tree
// root_file  its pidfd, -1 before Linux 5.3
// taken      the call that the meter received last
[[noreturn]] void run_watchdog(const Options& options, int listener, int socket, pid_t root, int root_file,
                               const seccomp_notif& taken) {
  setsid();  // a Ctrl-C at the terminal must not reach the watchdog
  // The watchdog must not hold the target's files open: a reader of its output waits for the end of
  // file.
  constexpr int kListener = 0;
  constexpr int kSocket = 1;
  constexpr int kRoot = 2;
  const int safe_root = fcntl(root_file, F_DUPFD, 10);
  const int safe_socket = fcntl(socket, F_DUPFD, 10);
  const int safe_listener = fcntl(listener, F_DUPFD, 10);
  for (const int standard : {0, 1, 2}) {  // even if nothing is opened in its place
    close(standard);
  }
  dup2(safe_listener, kListener);
  dup2(safe_socket, kSocket);
  dup2(safe_root, kRoot);
  close_other_files();
  char command = 0;
  ssize_t size = 0;
  do {
    size = read(kSocket, &command, 1);
  } while (size < 0 && errno == EINTR);
  if (size == 1 && command == kEndCommand) {
    _exit(0);
  }
  const bool meter_died = size == 0;
  const bool kill_all = meter_died && options.die_with_parent;
  if (kill_all) {
    kill_tree(safe_root < 0 ? -1 : kRoot, root);
  }
  if (listener >= 0) {
    if (meter_died) {
      (void)continue_call(kListener, taken.id);  // fails without harm if it was answered
    }
    serve(kListener, kill_all);
  }
  _exit(0);
}

}  // namespace

Watchdog::~Watchdog() {
  if (socket_ >= 0) {
    close(socket_);
  }
  if (request_ != nullptr) {
    munmap(request_, sizeof *request_);
  }
}

bool Watchdog::start(const Options& options, int listener, pid_t root) {
  void* const shared =
      mmap(nullptr, sizeof *request_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    return false;
  }
  request_ = static_cast<seccomp_notif*>(shared);
  // Not a pipe: writing to one whose reader was killed would end the meter by SIGPIPE.
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return false;
  }
  socket_ = pair[1];
  // Opened here, while the root certainly exists.
  const int root_file = static_cast<int>(syscall(SYS_pidfd_open, root, 0));
  pid_ = static_cast<pid_t>(syscall(SYS_clone, 0, nullptr, nullptr, nullptr, nullptr));
  if (pid_ == 0) {
    run_watchdog(options, listener, pair[0], root, root_file, *request_);
  }
  close(pair[0]);
  if (root_file >= 0) {
    close(root_file);
  }
  return pid_ > 0;
}

void Watchdog::dismiss(bool leave_running) const {
  if (socket_ < 0) {
    return;
  }
  const char command = leave_running ? kServeCommand : kEndCommand;
  (void)!send(socket_, &command, 1, MSG_NOSIGNAL);
}

}  // namespace heapwright::meter
