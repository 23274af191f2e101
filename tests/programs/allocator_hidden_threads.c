/* Checks that no block is handed out twice when a thread that the C library starts for itself and the program's own
   thread allocate at the same moment, both by the fast path. Usage: timer|aio|lookup. Status 3: one was. */
#define _GNU_SOURCE
#include <aio.h>
#include <netdb.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 60, SIZE = 48 };
static void* mine[BLOCKS];
static void* theirs[BLOCKS];
static atomic_int ready;
static atomic_int done;

static void take(void** blocks) {
  atomic_fetch_add(&ready, 1);
  while (atomic_load(&ready) < 2) {
  }
  for (int i = 0; i < BLOCKS; ++i) {
    blocks[i] = malloc(SIZE);
  }
}

static void notified(union sigval value) {
  (void)value;
  take(theirs);
  atomic_store(&done, 1);
}

/* Fills the free lists of all small sizes, so that even the C library's allocations for the thread take the fast
 * path. */
static void stock(void) {
  void* blocks[2 * BLOCKS];
  for (size_t size = 16; size <= 1024; size += 16) {
    const int count = size == SIZE ? 2 * BLOCKS : 8;
    for (int i = 0; i < count; ++i) {
      blocks[i] = malloc(size);
    }
    for (int i = 0; i < count; ++i) {
      free(blocks[i]);
    }
  }
}

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "";
  struct sigevent event = {0};
  struct aiocb request = {0};
  struct gaicb name = {0};
  struct gaicb* names[] = {&name};
  const struct itimerspec soon = {{0, 0}, {0, 1000}};
  timer_t timer;
  char letter = 0;
  event.sigev_notify = SIGEV_THREAD;
  event.sigev_notify_function = notified;
  request.aio_fildes = STDIN_FILENO;
  request.aio_buf = &letter;
  request.aio_nbytes = 1;
  request.aio_sigevent = event;
  name.ar_name = "127.0.0.1";
  stock();
  int begun = -1;
  if (strcmp(what, "timer") == 0) {
    begun = timer_create(CLOCK_MONOTONIC, &event, &timer);
    begun = begun == 0 ? timer_settime(timer, 0, &soon, NULL) : begun;
  } else if (strcmp(what, "aio") == 0) {
    begun = aio_read(&request);
  } else if (strcmp(what, "lookup") == 0) {
    begun = getaddrinfo_a(GAI_NOWAIT, names, 1, &event);
  }
  if (begun != 0) {
    return 2;
  }
  take(mine);
  while (atomic_load(&done) == 0) {
  }
  for (int i = 0; i < BLOCKS; ++i) {
    for (int j = 0; j < BLOCKS; ++j) {
      if (mine[i] == theirs[j]) {
        fprintf(stderr, "%p was handed out twice\n", mine[i]);
        return 3;
      }
    }
  }
  return 0;
}
