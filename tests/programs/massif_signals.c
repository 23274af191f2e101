/* Checks that a parent sees job control, signals and deaths of its children under a tracer as it does without one. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t got;

static void note(int signal) { got = signal; }

static void child(void) {
  signal(SIGUSR1, note);
  while (!got) usleep(1000);
  usleep(100000); /* so that the parent sees it continue before it sees it end */
  free(malloc(1UL << 20));
  _exit(7);
}

int main(void) {
  const struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) child();
  usleep(50000);
  kill(pid, SIGSTOP);
  if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGSTOP) return 1;
  kill(pid, SIGUSR1); /* is delivered only when it continues */
  usleep(50000);
  if (waitpid(pid, &status, WNOHANG) != 0) return 2;
  kill(pid, SIGCONT);
  if (waitpid(pid, &status, WCONTINUED) != pid || !WIFCONTINUED(status)) return 3;
  if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 7) return 4;
  pid = fork();
  if (pid == 0) raise(SIGSEGV);
  if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) return 5;
  pid = fork();
  if (pid == 0) {
    free(malloc(9UL << 20));
    raise(SIGKILL);
  }
  if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) return 6;
  return 0;
}
