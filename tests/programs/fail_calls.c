/* fail_calls [FIRST:STEP:TIMES] COMMAND...: runs a command whose memory calls can be made to fail.
 *
 * A seccomp listener gets every mmap (anonymous), munmap, mremap, madvise and mprotect of the command and its
 * children before the kernel acts. It answers ENOMEM if the plan says so: for call FIRST, and for every STEP-th
 * call after it, TIMES calls in all. The command makes plans itself (fail_calls.h). FIRST:STEP:TIMES is a plan that
 * holds from its exec on. It counts only the mappings of our allocators (MAP_NORESERVE), because the loader cannot
 * work without its own.
 *
 *     command                      fail_calls
 *        │ mmap ────────────────►  count; in the plan? ── yes ──► ENOMEM
 *        │                                       └─────── no ───► go on, to the kernel
 *        │ prctl(FAULTS, PLAN…) ►  a new plan, counted from 0
 *        │ prctl(FAULTS, WAIT)  ►  answered when the call of a HOLD has come; that call is held for a moment longer
 *
 * Exit status: the command's own, or 128 + signal; 77 if the system permits no listener. */
#define _GNU_SOURCE
#include "fail_calls.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UNSUPPORTED = 77, HELD_MS = 2 };

static struct {
  unsigned long first, step, times; /* times 0: nothing fails */
  bool only_allocators;             /* count only mappings with MAP_NORESERVE */
  unsigned long seen, failed;
  bool holds;                       /* do not fail call `first`: hold it back, and answer the WAIT call */
  unsigned long long waiting, held; /* notification ids of the WAIT call and of the held call, or 0 */
} plan;

/* Our own end of the socket is closed by the command's exec. */
static int install(void) {
  const unsigned n = 6;
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, n + 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_munmap, n + 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mremap, n, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, n - 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, n - 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])), /* little-endian: its low half */
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, FAULTS, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
  };
  struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  syscall(SYS_prctl, 38 /* PR_SET_NO_NEW_PRIVS */, 1, 0, 0, 0);
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void pass(int socket, int file) {
  char byte = 0, room[CMSG_SPACE(sizeof file)] = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  struct cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof file);
  memcpy(CMSG_DATA(head), &file, sizeof file);
  if (sendmsg(socket, &message, 0) != 1) _exit(126);
}

static int passed(int socket) {
  char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec part = {&byte, 1};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1 || CMSG_FIRSTHDR(&message) == NULL) return -1;
  int file = -1;
  memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof file);
  return file;
}

static void answer(int listener, unsigned long long id, long value, int error, bool go_on) {
  struct seccomp_notif_resp reply = {.id = id, .val = value, .error = -error};
  if (go_on) reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
  ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply); /* fails if the calling thread was killed */
}

/* Answers the WAIT call first, so that the held call stays in progress a moment longer. */
static void let_go(int listener, long value) {
  if (plan.waiting != 0) answer(listener, plan.waiting, value, 0, false);
  if (plan.waiting != 0 && plan.held != 0) nanosleep(&(struct timespec){0, HELD_MS * 1000000}, NULL);
  if (plan.held != 0) answer(listener, plan.held, 0, 0, true);
  plan.waiting = plan.held = 0;
}

static bool counts(const struct seccomp_data* call) {
  if (call->nr == SYS_mmap && (call->args[3] & MAP_ANONYMOUS) == 0) return false;
  return !plan.only_allocators || (call->nr == SYS_mmap && (call->args[3] & MAP_NORESERVE) != 0);
}

static void memory_call(int listener, const struct seccomp_notif* asked) {
  if (!counts(&asked->data)) {
    answer(listener, asked->id, 0, 0, true);
    return;
  }
  ++plan.seen;
  const bool due = plan.failed < plan.times && plan.seen >= plan.first && (plan.seen - plan.first) % plan.step == 0;
  plan.failed += due ? 1 : 0;
  if (due && plan.holds) {
    plan.held = asked->id;
    if (plan.waiting != 0) let_go(listener, 1);
  } else {
    answer(listener, asked->id, 0, due ? ENOMEM : 0, !due);
  }
}

static void word(int listener, const struct seccomp_notif* asked) {
  const __u64* const words = asked->data.args;
  const unsigned long seen = plan.seen, failed = plan.failed;
  switch (words[1]) {
    case FAULTS_PLAN:
    case FAULTS_HOLD:
      memset(&plan, 0, sizeof plan);
      plan.first = words[2];
      plan.step = words[3] > 0 ? words[3] : 1;
      plan.times = words[4];
      plan.holds = words[1] == FAULTS_HOLD;
      break;
    case FAULTS_END:
      let_go(listener, 0);
      plan.times = 0;
      break;
    case FAULTS_WAIT:
      if (plan.times == 0) {
        answer(listener, asked->id, 0, 0, false);
        return;
      }
      plan.waiting = asked->id;
      if (plan.held != 0) let_go(listener, 1);
      return;
    default:
      break;
  }
  answer(listener, asked->id, (long)(words[1] == FAULTS_FAILED ? failed : seen), 0, false);
}

static void serve(int listener) {
  struct seccomp_notif asked;
  while (true) {
    struct pollfd ready = {listener, POLLIN, 0};
    if (poll(&ready, 1, -1) < 0 && errno == EINTR) continue;
    if ((ready.revents & POLLIN) == 0) return; /* the last process has ended */
    memset(&asked, 0, sizeof asked);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;
    if (asked.data.nr == SYS_prctl) {
      word(listener, &asked);
    } else {
      memory_call(listener, &asked);
    }
  }
}

int main(int argc, char** argv) {
  char** command = argv + 1;
  if (argc > 2 && sscanf(argv[1], "%lu:%lu:%lu", &plan.first, &plan.step, &plan.times) == 3) {
    plan.only_allocators = true;
    ++command;
  }
  if (*command == NULL || (plan.times > 0 && plan.step == 0)) return 2;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return 126;
  const pid_t child = fork();
  if (child == 0) {
    const int listener = install();
    if (listener < 0) _exit(UNSUPPORTED);
    pass(ends[1], listener);
    close(listener);
    execvp(command[0], command);
    perror(command[0]);
    _exit(127);
  }
  close(ends[1]);
  const int listener = passed(ends[0]);
  if (listener >= 0) serve(listener);
  int status = 0;
  if (waitpid(child, &status, 0) != child) return 126;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
