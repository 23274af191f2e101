// Tests that trying the back ends does no harm to other processes where this one cannot fork.
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

#include "backends.h"
#include "calls.h"

namespace heapwright::meter {
namespace {

// Returns a filter under which this process cannot fork, as at its limit of processes. A signal to
// all processes, kill(-1), ends this process before it is sent.
std::vector<sock_filter> filter_without_fork() {
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : {
           SYS_clone,
           SYS_clone3,
#ifdef SYS_fork
           SYS_fork,
           SYS_vfork,
#endif
       }) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN));
  }
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kill, 0, 3));
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args)));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 0, 1));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return filter;
}

TEST(BackendWorks, KillsNoOtherProcessIfItCannotFork) {
  const pid_t child = fork();
  if (child == 0) {
    if (install_filter(filter_without_fork(), 0) != 0 || fork() != -1) {
      _exit(2);
    }
    for (const Backend backend : {Backend::kNotify, Backend::kPtrace}) {
      std::string why;
      if (backend_works(backend, why) || why.empty()) {
        _exit(3);
      }
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFSIGNALED(status)) << "it would have killed all processes";
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

}  // namespace
}  // namespace heapwright::meter
