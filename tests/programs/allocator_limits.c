/* Tests a malloc at its limits, one behaviour for each NAME: allocator_limits NAME. Prints one number.
 *
 *   refuse     KiB of resident memory that later, successful requests need more after 1,000 refused ones
 *   grow       number of page faults when realloc grows a block from 1 to 64 MiB and each step writes one byte
 *   confined   allocates and frees large blocks under a filter that ends a process that calls membarrier: prints 0
 *   cancelled  malloc_stats in a thread with a pending cancellation: prints no number, the statistics go to stderr
 *
 * Status 3 and a line if a block has wrong contents. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fail(const char* what) {
  dprintf(STDERR_FILENO, "%s\n", what);
  return 3;
}

static long resident_kib(void) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) return -1;
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE) / 1024;
}

static int refuse(void) {
  enum { kBlocks = 60, kSize = 30000 }; /* 1.7 MiB, which free superblocks may hold */
  static char* blocks[kBlocks];
  for (int i = 0; i < kBlocks; ++i) memset(blocks[i] = malloc(kSize), i, kSize);
  for (int i = 0; i < kBlocks; ++i) free(blocks[i]);
  free(malloc(40000)); /* a freed block that a size rounded up beyond SIZE_MAX could be taken for */
  const long before = resident_kib();
  for (size_t i = 0; i < 1000; ++i) {
    volatile size_t wanted[] = {PTRDIFF_MAX - i, SIZE_MAX - i, (size_t)PTRDIFF_MAX + 1 + i, ((size_t)1 << 48) + i};
    errno = 0;
    if (malloc(wanted[i % 4]) != NULL || errno != ENOMEM) return fail("malloc gave what nobody has");
    errno = 0;
    if (calloc(wanted[i % 4] / 16, 16) != NULL || errno != ENOMEM) return fail("calloc gave what nobody has");
  }
  printf("%ld\n", before - resident_kib());
  return 0;
}

static long faults(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

static int grow(void) {
  const size_t step = 65536;
  const size_t least = 1 << 20;
  const size_t most = 64 << 20;
  char* block = malloc(least);
  const long before = faults();
  for (size_t size = least; size <= most; size += step) {
    block = realloc(block, size);
    if (block == NULL) return fail("realloc refused");
    block[size - 1] = (char)(size / step % 127);
  }
  const long made = faults() - before;
  for (size_t size = most; size >= 2 * least; size -= 3 * step) {
    for (size_t at = least; at <= size; at += step)
      if (block[at - 1] != (char)(at / step % 127)) return fail("realloc lost something");
    block = realloc(block, size - 3 * step);
    if (block == NULL) return fail("realloc refused to shrink");
  }
  free(block);
  printf("%ld\n", made);
  return 0;
}

static void* told(void* unused) {
  pthread_cancel(pthread_self());
  malloc_stats();
  return unused;
}

static int cancelled(void) {
  pthread_t thread;
  void* result = NULL;
  if (pthread_create(&thread, NULL, told, NULL) != 0) return fail("pthread_create");
  pthread_join(thread, &result);
  return result == NULL ? 0 : fail("malloc_stats is a cancellation point");
}

static int confined(void) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) {
    perror("seccomp");
    return 3;
  }
  for (int i = 0; i < 10000; ++i) {
    volatile char* const block = malloc(100000);
    block[0] = 1;
    free((void*)block);
  }
  puts("0");
  return 0;
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "refuse") == 0) return refuse();
  if (argc == 2 && strcmp(argv[1], "grow") == 0) return grow();
  if (argc == 2 && strcmp(argv[1], "cancelled") == 0) return cancelled();
  if (argc == 2 && strcmp(argv[1], "confined") == 0) return confined();
  dprintf(STDERR_FILENO, "usage: allocator_limits refuse|grow|cancelled|confined\n");
  return 2;
}
