/* Processes that are hard to meter, by name: behaviours NAME [ARGUMENT]. Each exits with 0 if it ran as it would
 * without a meter. tests/meter/test_backends.py expects the sizes in MiB that the comments name. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1UL << 20)

static char* map(size_t size) {
  char* block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) exit(90);
  return block;
}

static char* touched(size_t size) {
  char* block = map(size);
  memset(block, 1, size);
  return block;
}

/* Waits longer on an emulated machine (PACE in tests/processes.py), where the meter takes samples more rarely. */
static void wait_ms(long ms) {
  const char* pace = getenv("HEAPWRIGHT_TEST_PACE");
  if (pace != NULL) ms *= atoi(pace);
  struct timespec left = {ms / 1000, ms % 1000 * 1000000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

static int waited(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 91;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 92;
}

/* Moves 96 MiB back and forth, page by page, because the distance is no multiple of 2 MiB. `from_thread`: another
 * thread does so, while this one makes mapping calls. */
enum { MOVES = 100 };
static char* moving;
static atomic_int moved;

static void* move(void* unused) {
  char* place = (char*)(128UL << 30); /* the kernel places its own mappings far from here */
  for (int i = 0; i < MOVES; ++i) {
    char* to = place + (i % 2 == 0 ? 0 : 200 * MIB + 4096);
    if (mremap(moving, 96 * MIB, 96 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to) exit(1);
    moving = to;
    wait_ms(2);
  }
  moved = 1;
  return unused;
}

static int behave_remap(int from_thread) {
  moving = touched(96 * MIB);
  pthread_t mover;
  if (!from_thread) return move(NULL) != NULL;
  if (pthread_create(&mover, NULL, move, NULL) != 0) return 1;
  while (!moved) {
    if (munmap(map(4096), 4096) != 0) return 1;
  }
  return pthread_join(mover, NULL);
}

/* 64 MiB in the parent, 32 more in the child, at the same time. */
static int behave_fork(void) {
  touched(64 * MIB);
  const pid_t child = fork();
  if (child == 0) {
    touched(32 * MIB);
    wait_ms(600); /* a poller that was delayed looks for children after some hundred ms again */
    _exit(0);
  }
  return waited(child);
}

/* `children` children share the parent's 64 MiB for a second. Each first writes to `written` MiB, and so has
 * private copies of these. Then the parent runs alone for `after` ms. */
static int behave_share(int children, size_t written, long after) {
  char* block = touched(64 * MIB);
  pid_t all[8];
  for (int i = 0; i < children; ++i) {
    all[i] = fork();
    if (all[i] == 0) {
      memset(block, 2, written * MIB);
      wait_ms(1000);
      _exit(0);
    }
  }
  int status = 0;
  for (int i = 0; i < children; ++i) status |= waited(all[i]);
  wait_ms(after);
  return status;
}

/* A vfork child that waits before it calls exec. */
static int behave_vfork_slow(void) {
  touched(64 * MIB);
  const pid_t child = vfork();
  if (child == 0) {
    wait_ms(500);
    _exit(0);
  }
  return waited(child);
}

/* 32 MiB in a process that other processes of its user may not inspect. */
static int behave_hidden(void) {
  if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return 1;
  touched(32 * MIB);
  wait_ms(100);
  return 0;
}

/* A vfork child uses its parent's 64 MiB, which must count once. */
static int behave_vfork(int rounds, const char* seconds) {
  touched(64 * MIB);
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = vfork();
    if (child == 0) {
      execl("/bin/sleep", "sleep", seconds, (char*)NULL);
      _exit(93);
    }
    if (waited(child) != 0) return 1;
  }
  return 0;
}

/* Four program images in one process; the first has 64 MiB. */
static int behave_exec(const char* self, const char* left) {
  const int times = left == NULL ? 3 : atoi(left);
  if (times == 3) touched(64 * MIB);
  if (times == 0) return 0;
  char next[12];
  snprintf(next, sizeof next, "%d", times - 1);
  execl(self, self, "exec", next, (char*)NULL);
  return 1;
}

/* `left` more program images in one process, each with the same heap. */
static int behave_exec_often(const char* self, int left) {
  void* block = malloc(300000);
  __asm__ volatile("" : : "r"(block) : "memory");
  if (block == NULL || left == 0) return block == NULL;
  char next[12];
  snprintf(next, sizeof next, "%d", left - 1);
  execl(self, self, "exec-often", next, (char*)NULL);
  return 1;
}

static void* idle(void* unused) {
  wait_ms(60);
  return unused;
}

/* Four threads with stacks of 64 MiB: address space, not heap. */
static int behave_threads(void) {
  pthread_t threads[4];
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 64 * MIB);
  for (int i = 0; i < 4; ++i) {
    if (pthread_create(&threads[i], &attributes, idle, NULL) != 0) return 1;
  }
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  return 0;
}

/* Detaches itself as daemons do, and maps its memory after its parent has ended. */
static int behave_daemon(const char* mark) {
  const pid_t first = fork();
  if (first != 0) return waited(first);
  setsid();
  if (fork() != 0) _exit(0);
  wait_ms(50);
  touched(48 * MIB);
  wait_ms(50);
  if (mark != NULL) close(open(mark, O_CREAT | O_WRONLY, 0644));
  _exit(0);
}

/* Has 64 MiB for half of the time and nothing for the other half. */
static int behave_steps(void) {
  char* block = touched(64 * MIB);
  wait_ms(300);
  munmap(block, 64 * MIB);
  wait_ms(300);
  return 0;
}

/* Returns 32 MiB to the kernel by each of munmap, MADV_DONTNEED and sbrk, and 16 MiB lazily by MADV_FREE. */
static int behave_returns(void) {
  munmap(touched(32 * MIB), 32 * MIB);
  char* block = touched(32 * MIB);
  if (madvise(block, 32 * MIB, MADV_DONTNEED) != 0) return 1;
  char* top = sbrk(32 * MIB);
  memset(top, 1, 32 * MIB);
  if (sbrk(-(long)(32 * MIB)) == (void*)-1) return 1;
  block = touched(16 * MIB);
  if (madvise(block, 16 * MIB, MADV_FREE) != 0) return 1;
  return 0;
}

/* Returns 80 MiB without munmap: by shrinking a mapping, by mapping over it, and by a hole in shared memory. */
static int behave_returns_rarely(void) {
  char* block = touched(48 * MIB);
  if (mremap(block, 48 * MIB, 16 * MIB, 0) != block) return 1;
  block = touched(32 * MIB);
  if (mmap(block, 32 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != block) return 2;
  block = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(block, 1, 16 * MIB);
  return madvise(block, 16 * MIB, MADV_REMOVE) == 0 ? 0 : 3;
}

/* Makes two thousand mappings that the kernel cannot merge. */
static int behave_mappings(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* block = map(2000 * page);
  for (size_t i = 0; i < 1000; i += 1) {
    if (mprotect(block + 2 * i * page, page, PROT_NONE) != 0) return 1;
  }
  wait_ms(300);
  return 0;
}

/* Prints the kernel's VmPeak and ru_maxrss of this process in KiB, and exits. */
static int behave_peaks(void) {
  munmap(touched(40 * MIB), 40 * MIB);
  map(100 * MIB);
  char text[4096];
  const int file = open("/proc/self/status", O_RDONLY);
  const ssize_t size = read(file, text, sizeof text - 1);
  if (size <= 0) return 1;
  text[size] = '\0';
  const char* peak = strstr(text, "VmPeak:");
  if (peak == NULL) return 1;
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  char line[64];
  const int length = snprintf(line, sizeof line, "%ld %ld\n", atol(peak + 7), usage.ru_maxrss);
  return write(1, line, (size_t)length) == length ? 0 : 1;
}

/* Forbids itself getppid by a filter, as sandboxes do, and checks that only this call fails. */
static int behave_filter(unsigned flags) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {4, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 1;
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) < 0) return 2;
  if (syscall(SYS_getppid) != -1 || errno != EPERM) return 3;
  touched(32 * MIB);
  return 0;
}

/* Enters strict mode, by either call. The kernel refuses this to a process that has a filter. Strict mode permits
 * only read, write, exit and sigreturn, so it ends by exit, because exit_group would kill it. */
static int behave_strict(int by_prctl) {
  touched(32 * MIB);
  const long result = by_prctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0)
                               : syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL);
  if (result != 0) return errno == EINVAL ? 5 : 6;
  syscall(SYS_exit, 0);
  return 7;
}

static void* outlive(void* unused) {
  wait_ms(50); /* until the first thread has ended */
  char* block = touched(64 * MIB);
  wait_ms(300);
  munmap(block, 64 * MIB);
  wait_ms(300);
  exit(0);
  return unused;
}

/* The first thread ends and the process continues without it, for half of the time with 64 MiB. */
static int behave_leaderless(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, outlive, NULL) != 0) return 1;
  pthread_exit(NULL);
}

/* Dies of a signal, with 32 MiB. */
static int behave_signal(int number) {
  touched(32 * MIB);
  wait_ms(50); /* so that a polling meter sees the memory */
  raise(number);
  return 1;
}

/* The parent waits for its dead child only after 300 ms. */
static int behave_zombie(void) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  wait_ms(300);
  return waited(child);
}

/* Two threads make mapping calls all the time until the file `go` exists. The file `mark` shows that they have
 * started. */
static const char* go;

static void* map_until(void* unused) {
  while (access(go, F_OK) != 0) {
    for (int i = 0; i < 100; ++i) {
      char* block = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (block == MAP_FAILED || munmap(block, MIB) != 0) exit(1);
    }
  }
  return unused;
}

static int behave_busy(const char* mark) {
  char draft[4096]; /* renamed at the end, so that a reader finds a complete mark */
  if (snprintf(draft, sizeof draft, "%s.new", mark) < 0) return 2;
  dprintf(open(draft, O_CREAT | O_WRONLY, 0644), "%d", getpid());
  if (rename(draft, mark) != 0) return 3;
  pthread_t thread;
  if (pthread_create(&thread, NULL, map_until, NULL) != 0) return 1;
  map_until(NULL);
  pthread_join(thread, NULL);
  return 0;
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "";
  const char* argument = argc > 2 ? argv[2] : NULL;
  if (strcmp(name, "fork") == 0) return behave_fork();
  if (strcmp(name, "remap") == 0) return behave_remap(0);
  if (strcmp(name, "remap-threads") == 0) return behave_remap(1);
  if (strcmp(name, "share") == 0 && argc == 5)
    return behave_share(atoi(argv[2]), (size_t)atoi(argv[3]), atol(argv[4]));
  if (strcmp(name, "vfork-slow") == 0) return behave_vfork_slow();
  if (strcmp(name, "hidden") == 0) return behave_hidden();
  if (strcmp(name, "vfork") == 0) return behave_vfork(3, "0.2");
  if (strcmp(name, "vfork-often") == 0) return behave_vfork(300, "0");
  if (strcmp(name, "exec") == 0) return behave_exec(argv[0], argument);
  if (strcmp(name, "exec-often") == 0) return behave_exec_often(argv[0], atoi(argument));
  if (strcmp(name, "threads") == 0) return behave_threads();
  if (strcmp(name, "daemon") == 0) return behave_daemon(argument);
  if (strcmp(name, "steps") == 0) return behave_steps();
  if (strcmp(name, "returns") == 0) return behave_returns();
  if (strcmp(name, "returns-rarely") == 0) return behave_returns_rarely();
  if (strcmp(name, "mappings") == 0) return behave_mappings();
  if (strcmp(name, "peaks") == 0) return behave_peaks();
  if (strcmp(name, "filter") == 0) return behave_filter(0);
  if (strcmp(name, "listener") == 0) return behave_filter(SECCOMP_FILTER_FLAG_NEW_LISTENER);
  if (strcmp(name, "strict") == 0) return behave_strict(0);
  if (strcmp(name, "strict-prctl") == 0) return behave_strict(1);
  if (strcmp(name, "leaderless") == 0) return behave_leaderless();
  if (strcmp(name, "zombie") == 0) return behave_zombie();
  if (strcmp(name, "busy") == 0 && argc == 4) return go = argv[3], behave_busy(argument);
  if (strcmp(name, "signal") == 0) return behave_signal(atoi(argument));
  return 99;
}
