/* kill_at CALL COUNT COMMAND...: kills a command as it enters system call number CALL for the COUNT-th time, before
 * the call does anything, like a kill -9 at the worst moment. Exits with 0 if it killed the command. */
#define _GNU_SOURCE
#include <linux/ptrace.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Calls ptrace directly, because glibc's ptrace header conflicts with the kernel's. */
static long trace(long what, pid_t pid, long address, void* data) {
  return syscall(SYS_ptrace, what, pid, address, data);
}

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const long call = atol(argv[1]);
  long left = atol(argv[2]);
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    execvp(argv[3], argv + 3);
    _exit(127);
  }
  int status = 0;
  if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) return 3;
  if (trace(PTRACE_SEIZE, child, 0, (void*)1L /* TRACESYSGOOD */) != 0) return 4;
  kill(child, SIGCONT);
  while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    const int signal = WSTOPSIG(status);
    struct ptrace_syscall_info info = {0};
    if (signal == (SIGTRAP | 0x80)) {
      trace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info);
      if (info.op == PTRACE_SYSCALL_INFO_ENTRY && (long)info.entry.nr == call && --left == 0) kill(child, SIGKILL);
    }
    const int event = status >> 16 != 0 || signal == (SIGTRAP | 0x80);
    trace(PTRACE_SYSCALL, child, 0, (void*)(long)(event ? 0 : signal));
  }
  return left == 0 ? 0 : 1;
}
