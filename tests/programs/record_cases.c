/* Cases that a recorder must record correctly: record_cases CASE. Tests look for blocks of 40000 to 49999 bytes,
 * because the C library and the loader allocate none of these sizes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <libintl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../native/recorder/include/heapwright.h"

/* A volatile base of sizes, so that the compiler removes no allocation. */
static volatile size_t base = 40000;
static void* kept;
static const char* case_name;

static void calls(void) {
  void* a = malloc(base + 1);
  void* b = calloc(1, base + 2);
  a = realloc(a, base + 3);
  void* c = realloc(NULL, base + 4);
  c = realloc(c, 0);
  free(c);
  free(NULL);
  malloc_usable_size(b);
  a = reallocarray(a, 2, (base + 6) / 2);
  free(a);
  free(b);
  if (malloc((size_t)1 << 62) != NULL) abort();
  void* d = malloc(base + 5);
  if (realloc(d, (size_t)1 << 62) != NULL) abort();
  free(d);
}

static void aligned(void) {
  void* a = memalign(64, base + 1);
  void* b = NULL;
  if (posix_memalign(&b, 128, base + 2) != 0) abort();
  void* c = aligned_alloc(256, base + 192);
  void* d = valloc(base + 4);
  void* e = pvalloc(base + 5);
  free(e);
  free(d);
  free(c);
  free(b);
  free(a);
}

static void* thread_makes(void* argument) {
  (void)argument;
  void* own = malloc(base + 1);
  kept = malloc(base + 2);
  free(own);
  return NULL;
}

static void threads(void) {
  pthread_t thread;
  for (int i = 0; i < 2; i++) {
    pthread_create(&thread, NULL, thread_makes, NULL);
    pthread_join(thread, NULL);
    free(kept);
  }
}

static pthread_key_t key;
static _Thread_local int rounds;
static void in_destructor(void* block) {
  free(block);
  void* more = malloc(base + 10 + (size_t)rounds);
  if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(key, more);
  } else {
    free(more);
  }
}

static void* thread_with_destructor(void* argument) {
  pthread_setspecific(key, malloc(base + 1));
  return argument;
}

static void destructors(void) {
  pthread_key_create(&key, in_destructor);
  pthread_t thread;
  pthread_create(&thread, NULL, thread_with_destructor, NULL);
  pthread_join(thread, NULL);
}

/* Its last round of destructors frees a large block of the main thread. */
static void late_free(void* value) {
  const uintptr_t round = (uintptr_t)value;
  if (round < 3) {
    pthread_setspecific(key, (void*)(round + 1));
  } else {
    free(kept);
  }
}

static void* thread_with_late_free(void* nothing) {
  kept = malloc(16);
  free(kept);
  kept = nothing;
  pthread_setspecific(key, (void*)1);
  return NULL;
}

static void late(void) {
  pthread_key_create(&key, late_free);
  pthread_t thread;
  pthread_create(&thread, NULL, thread_with_late_free, malloc((size_t)1 << 30));
  pthread_join(thread, NULL);
}

static void request(long count) {
  for (long i = 0; i < count; i++) {
    void* volatile block = malloc(32);
    free(block);
  }
}

/* A process makes 400000 requests, and becomes a daemon, which makes 20000. */
static void daemonizes(void) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  if (fork() == 0) {
    request(400000);
    if (daemon(1, 1) != 0) abort();
    request(20000);
    exit(0);
  }
  close(ends[1]);
  char end;
  if (read(ends[0], &end, 1) != 0) abort(); /* the daemon has ended */
}

static void forks(void) {
  void* before = malloc(base + 1);
  const pid_t child = fork();
  if (child == 0) {
    free(before);
    free(malloc(base + 2));
    _exit(0);
  }
  waitpid(child, NULL, 0);
  free(before);
}

static void execs(char* self) {
  char* words[] = {self, "calls", NULL};
  const pid_t child = vfork();
  if (child == 0) {
    execv(self, words);
    _exit(1);
  }
  waitpid(child, NULL, 0);
  free(malloc(base + 9));
  execv(self, words);
}

static void handler(int number) {
  (void)number;
  kept = malloc(base + 2);
}

static void signals(void) {
  signal(SIGUSR1, handler);
  void* mine = malloc(base + 1);
  raise(SIGUSR1);
  free(mine);
  free(kept);
}

/* Needs an allocator that may be interrupted anywhere. */
static volatile sig_atomic_t handled;
static void storm_handler(int number) {
  (void)number;
  free(malloc(base + 2));
  handled++;
}

static void storm(void) {
  signal(SIGALRM, storm_handler);
  const struct itimerval often = {{0, 100}, {0, 100}};
  const struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, NULL);
  long made = 0;
  while (handled < 300 && made < 200000) {
    void* mine = malloc(16);
    mine = realloc(mine, 24);
    free(mine);
    made++;
  }
  setitimer(ITIMER_REAL, &never, NULL);
  printf("%ld %ld\n", made, (long)handled);
}

static void library(const char* path) {
  for (int i = 0; i < 2; i++) {
    void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) abort();
    void* (*make)(void) = (void* (*)(void))(uintptr_t)dlsym(handle, "library_makes");
    free(make());
    dlclose(handle);
  }
}

static void phases(void) {
  HEAPWRIGHT_PHASE("load");
  void* a = malloc(base + 1);
  HEAPWRIGHT_PHASE("serve");
  free(a);
  HEAPWRIGHT_PHASE("load");
  const pid_t child = fork();
  if (child == 0) {
    HEAPWRIGHT_PHASE("child");
    _exit(0);
  }
  waitpid(child, NULL, 0);
}

/* Uses half of a large block, and a quarter of another one that is never freed. */
static void large(void) {
  char* a = malloc(64u << 20);
  char* b = malloc(32u << 20);
  madvise((void*)(((uintptr_t)a + 4095) & ~(uintptr_t)4095), (64u << 20) - 8192, MADV_NOHUGEPAGE);
  madvise((void*)(((uintptr_t)b + 4095) & ~(uintptr_t)4095), (32u << 20) - 8192, MADV_NOHUGEPAGE);
  memset(a, 1, 32u << 20);
  memset(b, 1, 8u << 20);
  free(a);
  kept = b;
}

/* Fills a block, and uses a quarter of the next block, which is in the same memory. */
static void reused(void) {
  char* a = malloc(100u << 10);
  kept = malloc(16); /* keeps the memory from being given back */
  memset(a, 1, 100u << 10);
  free(a);
  a = malloc(100u << 10);
  memset(a, 2, 25u << 10);
  free(a);
}

/* Closes all open files, as daemons do, and reuses their descriptors. */
static void closes(const char* path) {
  void* a = malloc(base + 1);
  for (int i = 3; i < 2048; i++) close(i);
  int files[1100];
  int count = 0;
  /* Beyond the recorder's number, which is below 1024, and with some left where that is the limit. */
  while ((files[count] = open(path, O_RDWR | O_CREAT, 0600)) >= 0 && files[count] < 1015) count++;
  for (long i = 0; i < 50000; i++) free(malloc(32));
  free(a);
  if (lseek(files[0], 0, SEEK_END) != 0) abort();
}

/* Writes the number of its completed allocations to a file until it is killed. */
static void endless(const char* path) {
  const int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (ftruncate(file, 4096) != 0) abort();
  volatile uint64_t* done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  for (;;) {
    free(malloc(base + done[0] % 100));
    done[0]++;
  }
}

/* Allocates before any constructor and before main. */
static void* early;
static void before_constructors(int count, char** words, char** environment) {
  (void)environment;
  if (count > 1 && strcmp(words[1], "early") == 0) early = malloc(base + 1);
  /* As libgpg-error's constructor does: glibc calls the process's first malloc while it holds the lock of gettext. */
  if (count > 1 && strcmp(words[1], "translated") == 0) bindtextdomain("record_cases", "/nowhere");
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char**, char**) = before_constructors;

__attribute__((constructor(101))) static void constructor(void) {
  if (early != NULL) early = realloc(early, base + 2);
}

__attribute__((destructor(101))) static void destructor(void) {
  if (case_name != NULL && strcmp(case_name, "early") == 0) free(early);
}

int main(int count, char** words) {
  case_name = count > 1 ? words[1] : "";
  const char* path = count > 2 ? words[2] : "";
  if (strcmp(case_name, "calls") == 0) calls();
  if (strcmp(case_name, "aligned") == 0) aligned();
  if (strcmp(case_name, "threads") == 0) threads();
  if (strcmp(case_name, "destructors") == 0) destructors();
  if (strcmp(case_name, "late") == 0) late();
  if (strcmp(case_name, "daemon") == 0) daemonizes();
  if (strcmp(case_name, "forks") == 0) forks();
  if (strcmp(case_name, "execs") == 0) execs(words[0]);
  if (strcmp(case_name, "signals") == 0) signals();
  if (strcmp(case_name, "storm") == 0) storm();
  if (strcmp(case_name, "library") == 0) library(path);
  if (strcmp(case_name, "phases") == 0) phases();
  if (strcmp(case_name, "large") == 0) large();
  if (strcmp(case_name, "reused") == 0) reused();
  if (strcmp(case_name, "closes") == 0) closes(path);
  if (strcmp(case_name, "translated") == 0) {
    alarm(60); /* if the lock is never free */
    if (dgettext("record_cases", case_name) == NULL) abort(); /* waits for the lock, too */
    puts(bindtextdomain("record_cases", "/elsewhere"));
  }
  if (strcmp(case_name, "endless") == 0) endless(path);
  if (strcmp(case_name, "many") == 0) {
    for (long i = 0; i < 500000; i++) free(malloc(32));
    puts("done");
  }
  return 0;
}
