/* Forks in difficult situations, one for each NAME: allocator_forks NAME.
 *
 *   files     threads open, write, flush (fflush(NULL)) and close files, and allocate while they hold one; two
 *             threads fork
 *   handlers  pthread_atfork handlers allocate; they are registered before the first allocation, before the first
 *             thread, and after it
 *   nested    a handler registered before the first thread raises a signal whose handler forks
 *   signals   a process with one thread allocates all the time, and a signal's handler forks
 *   waits     a handler waits for a mutex whose owner allocates
 *   all [SECONDS]
 *             all threads of the above, one that loads libraries, and handlers registered before and after
 *
 * Status 0 and "ok" when all is well; SIGALRM when something hangs. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_int stop;
static const char* doing = "";

static void fail(const char* what) {
  dprintf(STDERR_FILENO, "%s: %s\n", doing, what);
  _exit(3);
}

static unsigned next_random(unsigned* state) { return *state = *state * 1103515245 + 12345; }

/* Allocates blocks of all kinds and fills each of them. */
static void churn(unsigned seed, int times) {
  unsigned char* blocks[16] = {0};
  unsigned state = seed * 2 + 1;
  for (int i = 0; i < times; ++i) {
    const unsigned slot = next_random(&state) >> 16 & 15;
    const unsigned kind = next_random(&state) >> 16 & 63;
    const size_t size = (kind == 0 ? 2000000 : kind < 4 ? 60000 : 600) + (next_random(&state) >> 16 & 255);
    free(blocks[slot]);
    blocks[slot] = malloc(size);
    if (blocks[slot] == NULL) fail("malloc refused");
    memset(blocks[slot], (int)slot, kind == 0 ? 100 : size);
  }
  for (int i = 0; i < 16; ++i) free(blocks[i]);
}

static void await_child(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail("no child");
  if (status != 0) fail(status == SIGALRM ? "the child hangs" : "the child failed");
}

/* A child that allocates, prints and ends. */
static void fork_once(unsigned seed) {
  const pid_t child = fork();
  if (child < 0) fail("fork failed");
  if (child == 0) {
    alarm(20);
    churn(seed, 200);
    FILE* file = fopen("/dev/null", "w");
    if (file == NULL || fprintf(file, "%u\n", seed) < 0 || fclose(file) != 0) _exit(4);
    fflush(NULL);
    _exit(0);
  }
  churn(seed + 1, 20);
  await_child(child);
}

static void* restless(void* raw) {
  for (unsigned i = 0; !stop; ++i) churn((unsigned)(size_t)raw * 7919 + i, 50);
  return NULL;
}

static void* opens(void* raw) {
  while (!stop) {
    FILE* file = fopen("/dev/null", "w");
    if (file == NULL) fail("fopen");
    fprintf(file, "%zu\n", (size_t)raw);
    flockfile(file);
    churn(5, 20); /* a thread that flushes all files waits for this one */
    funlockfile(file);
    fclose(file);
  }
  return NULL;
}

static void* flushes(void* raw) {
  while (!stop) fflush(NULL);
  return raw;
}

static void* forks(void* raw) {
  for (unsigned i = 0; !stop; ++i) fork_once(i * 31);
  return raw;
}

static pthread_t threads[8];
static int count;

static void begin(void* (*body)(void*), int times) {
  while (times-- > 0) {
    if (pthread_create(&threads[count], NULL, body, (void*)(size_t)count) != 0) fail("pthread_create");
    ++count;
  }
}

static void end(void) {
  stop = 1;
  while (count > 0) pthread_join(threads[--count], NULL);
}

static void files(void) {
  begin(opens, 3);
  begin(flushes, 1);
  begin(restless, 1);
  begin(forks, 1);
  for (unsigned i = 0; i < 200; ++i) fork_once(i);
  end();
}

static void allocates(void) { churn(9, 30); }
static int registered;
static void* kept_by_handler;
static void keeps(void) { kept_by_handler = malloc(100); }
static void frees(void) { free(kept_by_handler); }

static void handlers(void) {
  begin(restless, 2);
  if (registered != 1) fail("the constructor has not run");
  pthread_atfork(allocates, allocates, allocates);
  for (unsigned i = 0; i < 300; ++i) fork_once(i);
  end();
}

static atomic_int depth;
static atomic_int forked;

static void forks_in_handler(int number) {
  (void)number;
  const int error = errno;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  if (child > 0) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    ++forked;
  }
  errno = error;
}

static void raises(void) {
  if (depth++ == 0) raise(SIGUSR1);
  --depth;
}

static void handle(int number) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = forks_in_handler;
  action.sa_flags = SA_RESTART;
  sigaction(number, &action, NULL);
}

static void nested(void) {
  handle(SIGUSR1);
  begin(restless, 2);
  begin(opens, 1);
  for (unsigned i = 0; i < 200; ++i) fork_once(i);
  end();
  if (forked != 200) fail("the handler has not forked each time");
}

static void signals(void) {
  handle(SIGPROF);
  const struct itimerval often = {{0, 2000}, {0, 2000}};
  setitimer(ITIMER_PROF, &often, NULL);
  for (unsigned i = 0; forked < 100; ++i) churn(i, 500);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void locks(void) { pthread_mutex_lock(&mutex); }
static void unlocks(void) { pthread_mutex_unlock(&mutex); }

static void* allocates_locked(void* raw) {
  for (unsigned i = 0; !stop; ++i) {
    pthread_mutex_lock(&mutex);
    churn(i, 300);
    pthread_mutex_unlock(&mutex);
  }
  return raw;
}

static void waits(void) {
  begin(allocates_locked, 2);
  for (unsigned i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    await_child(child);
  }
  end();
}

static void* loads(void* raw) {
  while (!stop) {
    void* library = dlopen("libgcc_s.so.1", RTLD_NOW);
    if (library == NULL) fail("dlopen");
    churn(3, 20);
    dlclose(library);
  }
  return raw;
}

static int seconds = 1;

static void all(void) {
  begin(opens, 2);
  begin(flushes, 1);
  begin(loads, 1);
  begin(allocates_locked, 1);
  begin(forks, 1);
  pthread_atfork(allocates, allocates, allocates);
  const time_t until = time(NULL) + seconds;
  for (unsigned i = 0; time(NULL) <= until; ++i) fork_once(i);
  end();
}

/* Runs before all other code of the program, when there is one thread and hardly an allocation. */
__attribute__((constructor)) static void early(int count_of, char** words) {
  const char* const name = count_of > 1 ? words[1] : "";
  registered = 1;
  if (strcmp(name, "handlers") == 0) pthread_atfork(keeps, frees, frees);
  if (strcmp(name, "nested") == 0) pthread_atfork(raises, NULL, NULL);
  if (strcmp(name, "all") == 0) pthread_atfork(keeps, frees, frees);
  if (strcmp(name, "waits") == 0 || strcmp(name, "all") == 0) pthread_atfork(locks, unlocks, unlocks);
}

int main(int argc, char** argv) {
  static const struct {
    const char* name;
    void (*run)(void);
  } behaviours[] = {{"files", files}, {"handlers", handlers}, {"nested", nested}, {"signals", signals}, {"waits", waits}, {"all", all}};
  for (size_t i = 0; argc >= 2 && i < sizeof behaviours / sizeof *behaviours; ++i)
    if (strcmp(argv[1], behaviours[i].name) == 0) {
      doing = argv[1];
      if (argc > 2) seconds = atoi(argv[2]);
      alarm((unsigned)seconds + 100);
      behaviours[i].run();
      return write(STDOUT_FILENO, "ok\n", 3) == 3 ? 0 : 1;
    }
  dprintf(STDERR_FILENO, "usage: allocator_forks files|handlers|nested|signals|waits|all [SECONDS]\n");
  return 2;
}
