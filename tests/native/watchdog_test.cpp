// Tests the watchdog where the meter dies, where the kernel lacks close_range, and where the
// watchdog itself is killed. tests/meter tests that the target then runs on.
#include "watchdog.h"

#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <vector>

#include "calls.h"

namespace heapwright::meter {
namespace {

// Returns a filter under which close_range fails, as before Linux 5.9 and in old containers.
std::vector<sock_filter> filter_without_close_range() {
  return {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
}

// Plays a meter with a root process and a watchdog, which is then killed. Writes the process ids of
// the two to `out` before.
[[noreturn]] void die_as_meter(bool has_close_range, int out) {
  if (!has_close_range && install_filter(filter_without_close_range(), 0) != 0) {
    _exit(2);
  }
  const pid_t root = fork();
  if (root < 0) {
    _exit(2);
  }
  if (root == 0) {
    while (true) {
      pause();
    }
  }
  Options options;
  options.die_with_parent = true;
  Watchdog watchdog;
  const bool started = watchdog.start(options, -1, root);
  const std::array<pid_t, 2> ids{root, started ? watchdog.pid() : 0};
  (void)!write(out, ids.data(), sizeof ids);
  (void)raise(SIGKILL);
  _exit(3);
}

// Whether the root of a meter that is killed ends soon after it.
bool kills_the_root(bool has_close_range) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // the root becomes a child of this process
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), 0) != 0) {
    return false;
  }
  const pid_t meter = fork();
  if (meter == 0) {
    die_as_meter(has_close_range, pipe[1]);
  }
  close(pipe[1]);
  std::array<pid_t, 2> ids{};
  const bool read_ids = read(pipe[0], ids.data(), sizeof ids) == sizeof ids;
  close(pipe[0]);
  waitpid(meter, nullptr, 0);
  if (!read_ids || ids[0] <= 0 || ids[1] <= 0) {
    return false;
  }
  bool ended = false;
  for (int i = 0; i < 5000 && !ended; ++i) {
    ended = waitpid(ids[0], nullptr, WNOHANG) == ids[0];
    usleep(1000);
  }
  if (!ended) {
    kill(ids[0], SIGKILL);
    waitpid(ids[0], nullptr, 0);
    kill(ids[1], SIGKILL);
  }
  waitpid(ids[1], nullptr, __WALL);
  return ended;
}

TEST(Watchdog, KillsTheTreeIfTheMeterDies) { EXPECT_TRUE(kills_the_root(true)); }

TEST(Watchdog, KillsTheTreeWithoutCloseRange) { EXPECT_TRUE(kills_the_root(false)); }

TEST(Watchdog, CanBeDismissedAfterItWasKilled) {
  const pid_t meter = fork();
  if (meter == 0) {
    (void)signal(SIGPIPE, SIG_DFL);
    Watchdog watchdog;
    if (!watchdog.start(Options{}, -1, getpid())) {
      _exit(2);
    }
    kill(watchdog.pid(), SIGKILL);
    waitpid(watchdog.pid(), nullptr, __WALL);
    watchdog.dismiss(false);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(meter, &status, 0), meter);
  EXPECT_EQ(status, 0) << "SIGPIPE has ended the meter";
}

}  // namespace
}  // namespace heapwright::meter
