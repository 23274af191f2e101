// Fragments its heap, and then tells on request what its malloc says of it.
//
//   fragments THREADS MIB [MMAP_MAX]
//
// Each thread, the main one among them, allocates MIB of blocks of mixed sizes and five large ones, and frees four of
// five. Then the program prints "ready" and answers lines on standard input: "info" with malloc_info(), "pid" with its
// process id, "trim" by calling malloc_trim(0), "work" by allocating and freeing for ever in another thread.
// FOREIGN_SBRK: something else moves the program break. NO_BRK: the program break cannot grow far, so that the main
// arena has several pieces. SPLIT_HEAP: a page of the heap is locked, so that the kernel shows the heap as several
// mappings. FASTBINS: nearly all blocks are small and are freed, so that free chunks lie in fastbins beside each other.
// FORKED: a child allocates on and answers, so that its heap has mappings from before and after the fork.
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(FORKED)
#include <signal.h>
#include <sys/prctl.h>
#endif

#if defined(FASTBINS)
enum { kMaxSmall = 100, kLiveEvery = 500 };
#else
enum { kMaxSmall = 300, kLiveEvery = 5 };
#endif
enum { kMaxBlocks = 2000000, kLarge = 5 };
static size_t bytes_each;
static int done;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

#if defined(FOREIGN_SBRK)
__attribute__((constructor)) static void disturb(void) {
  free(malloc(100));
  ((volatile char *)sbrk(100000))[5] = 1;
}
#elif defined(NO_BRK)
__attribute__((constructor)) static void disturb(void) {
  const uintptr_t at = ((uintptr_t)sbrk(0) + (4 << 20) + 4095) & ~(uintptr_t)4095;
  mmap((void *)at, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
#endif

static void fragment(unsigned seed) {
  void **blocks = malloc(sizeof(void *) * kMaxBlocks);
  void *large[kLarge];
  size_t sum = 0;
  int count = 0;
  while (sum < bytes_each && count < kMaxBlocks) {
    seed = seed * 1103515245 + 12345;
    const int is_larger = kMaxSmall == 300 ? (seed & 3) == 0 : (seed & 0xff0000) == 0;
    const size_t size = 16 + (seed >> 8) % (is_larger ? 5000 : kMaxSmall);
    blocks[count] = malloc(size);
    memset(blocks[count++], 1, size);
    sum += size;
  }
  for (int i = 0; i < kLarge; ++i) {
    large[i] = malloc(300000 + (size_t)i * 1000);
    memset(large[i], 1, 300000);
  }
  free(large[1]);  // empties the fastbins
  for (int i = 0; i < count; ++i) {
    if (i % kLiveEvery != 0) {
      free(blocks[i]);
    }
  }
  pthread_mutex_lock(&mutex);
  ++done;
  pthread_mutex_unlock(&mutex);
}

static void *run(void *seed) {
  fragment((unsigned)(uintptr_t)seed);
  for (;;) {
    pause();
  }
  return NULL;
}

static void *work(void *unused) {
  void *blocks[1000] = {0};
  for (unsigned seed = 1;; seed = seed * 1103515245 + 12345) {
    void **const block = &blocks[(seed >> 8) % 1000];
    free(*block);
    *block = malloc(16 + (seed >> 12) % 3000);
    *(volatile char *)*block = 1;
  }
  return unused;
}

int main(int argc, char **argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  char line[64];
  pthread_t thread;
  bytes_each = (size_t)(argc > 2 ? atoi(argv[2]) : 10) << 20;
  if (argc > 3) {
    mallopt(M_MMAP_MAX, atoi(argv[3]));
  }
  for (int i = 1; i < threads; ++i) {
    pthread_create(&thread, NULL, run, (void *)(uintptr_t)(7919 * i));
  }
  fragment(1);
#if defined(SPLIT_HEAP)
  mlock((char *)sbrk(0) - (2 << 20), 4096);
#elif defined(FORKED)
  if (fork() != 0) {
    for (;;) {
      pause();
    }
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  fragment(2);
  done = threads;
#endif
  for (int ready = 0; !ready;) {
    usleep(1000);
    pthread_mutex_lock(&mutex);
    ready = done == threads;
    pthread_mutex_unlock(&mutex);
  }
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    if (line[0] == 'i') {
      malloc_info(0, stdout);
    } else if (line[0] == 'p') {
      printf("%d\n", (int)getpid());
    } else if (line[0] == 't') {
      malloc_trim(0);
      puts("trimmed");
    } else {
      pthread_create(&thread, NULL, work, NULL);
      puts("working");
    }
    fflush(stdout);
  }
  _exit(0);
}
