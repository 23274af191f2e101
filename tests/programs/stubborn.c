/* Targets that are hard to run and to meter: stubborn NAME STATUS. Each allocates before and after its act, prints
 * 'done' if it still can, and exits with STATUS; with 77 if the system does not permit the act. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DAEMON_BYTES = 40 << 20 };

static const char* status;

static void wait_ms(long ms) {
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

static void allocate(void) {
  static char* blocks[3000];
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 3000; ++i) {
      blocks[i] = malloc((size_t)(i * 7 % 5000 + 1));
      if (blocks[i] != NULL) blocks[i][0] = 1;
    }
    for (int i = 0; i < 3000; ++i) free(blocks[i]);
  }
  char* large = malloc(8 << 20);
  if (large != NULL) memset(large, 1, 8 << 20);
  __asm__ volatile("" : : "r"(large) : "memory");
  free(large);
}

/* Starts a grandchild in a session of its own with no open files. It outlives its parents and allocates more
 * memory. */
static void daemonise(void) {
  const pid_t first = fork();
  if (first != 0) {
    waitpid(first, NULL, 0);
    return;
  }
  setsid();
  if (fork() != 0) _exit(0);
  for (int file = 0; file < 64; ++file) close(file);
  wait_ms(150);
  allocate();
  char* const large = malloc(DAEMON_BYTES);
  if (large != NULL) memset(large, 1, DAEMON_BYTES);
  __asm__ volatile("" : : "r"(large) : "memory");
  _exit(0);
}

static void close_everything(void) {
  for (int file = 0; file < 1024; ++file) close(file);
}

static void limit(int what, rlim_t most) {
  const struct rlimit both = {most, most};
  if (setrlimit(what, &both) != 0) exit(77);
}

static void limit_everything(void) {
  limit(RLIMIT_NOFILE, 3);
  limit(RLIMIT_AS, (rlim_t)1 << 30);
  limit(RLIMIT_DATA, (rlim_t)1 << 28);
  limit(RLIMIT_STACK, 1 << 20);
  limit(RLIMIT_CPU, 20);
  limit(RLIMIT_CORE, 0);
}

static void drop_privileges(void) {
  if (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0) exit(77);
}

/* Installs a sandbox's seccomp filter, which refuses to open a file, to change a file's size, and prctl. */
static void sandbox(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ftruncate, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  };
  struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) exit(77);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0) exit(77);
}

static void hide(void) {
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  prctl(PR_SET_NAME, "\033[31m\n(x) R", 0, 0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static void leave_session(void) {
  const pid_t child = fork();
  if (child != 0) {
    int result = 0;
    waitpid(child, &result, 0);
    _exit(WIFEXITED(result) ? WEXITSTATUS(result) : 99);
  }
  setsid();
}

static void lose_proc(void) {
  if (unshare(CLONE_NEWNS) != 0) exit(77);
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) exit(77);
  if (umount2("/proc", MNT_DETACH) != 0) exit(77);
}

static void lose_folder(void) {
  char name[] = "lost.XXXXXX";
  if (mkdtemp(name) == NULL || chdir(name) != 0) exit(77);
  char back[64];
  snprintf(back, sizeof back, "../%s", name);
  if (rmdir(back) != 0) exit(78);
}

static void become_another(void) {
  execl("/bin/sh", "sh", "-c", "echo done; exit $0", status, (char*)NULL);
  exit(79);
}

/* Ignores every signal that can be ignored, and waits. */
static void endure(void) {
  for (int number = 1; number < 32; ++number) {
    if (number != SIGCHLD) signal(number, SIG_IGN);
  }
  while (1) wait_ms(1000);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*act)(void);
  } acts[] = {{"daemon", daemonise},   {"closes", close_everything}, {"limits", limit_everything},
              {"drops", drop_privileges}, {"sandbox", sandbox},      {"hides", hide},
              {"session", leave_session}, {"no-proc", lose_proc},    {"no-folder", lose_folder},
              {"execs", become_another},  {"endures", endure}};
  if (argc != 3) return 2;
  status = argv[2];
  allocate();
  for (size_t i = 0; i < sizeof acts / sizeof *acts; ++i) {
    if (strcmp(acts[i].name, argv[1]) == 0) acts[i].act();
  }
  allocate();
  static const char words[] = "done\n";
  if (write(1, words, sizeof words - 1) < 0) _exit(atoi(status)); /* stdout may be closed */
  return atoi(status);
}
