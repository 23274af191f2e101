// Programs of known size whose samples were once wrong. The peak of live bytes is printed.
//
//   record_resizes oscillate        2,000 buffers that a realloc makes large and small, forty times
//   record_resizes edge             20,000 buffers just below 1 KiB, which a realloc makes larger
//   record_resizes grow COUNT       100 buffers that grow to 1 MiB by doubling, then COUNT small blocks
//   record_resizes countdowns COUNT 200 threads allocate once, the main thread COUNT times, then each thread 200 blocks
//                                   of 777 bytes; these are counted
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRing = 5000, kThreads = 200, kOfThread = 200 };

static void* ring[kRing];
static void* blocks[20000];
static void* volatile seen;  // so that no allocation is left out
static pthread_barrier_t begun;
static pthread_barrier_t done;

static void churn(long count, size_t size) {
  for (long i = 0; i < count; ++i) {
    void** const at = &ring[i % kRing];
    free(*at);
    *at = malloc(size);
  }
}

static void* work(void* nothing) {
  void* const first = malloc(777);
  seen = first;
  free(first);
  pthread_barrier_wait(&begun);
  pthread_barrier_wait(&done);
  for (int i = 0; i < kOfThread - 1; ++i) {
    void* const block = malloc(777);
    seen = block;
    free(block);
  }
  return nothing;
}

int main(int argc, char** argv) {
  const char* const mode = argc > 1 ? argv[1] : "";
  const long count = argc > 2 ? atol(argv[2]) : 0;
  long peak = 0;
  if (strcmp(mode, "oscillate") == 0) {
    peak = 2000L * 2000;
    for (int i = 0; i < 2000; ++i) {
      blocks[i] = malloc(100);
    }
    for (int k = 0; k < 80; ++k) {
      for (int i = 0; i < 2000; ++i) {
        blocks[i] = realloc(blocks[i], k % 2 == 0 ? 2000 : 100);
      }
    }
  } else if (strcmp(mode, "edge") == 0) {
    peak = 20000L * 2000;
    for (int i = 0; i < 20000; ++i) {
      blocks[i] = malloc(1020);
    }
    for (int i = 0; i < 20000; ++i) {
      blocks[i] = realloc(blocks[i], 2000);
    }
  } else if (strcmp(mode, "grow") == 0) {
    peak = (100L << 20) + kRing * 48;
    for (int i = 0; i < 100; ++i) {
      blocks[i] = malloc(512);
      for (size_t size = 1024; size <= (size_t)1 << 20; size *= 2) {
        blocks[i] = realloc(blocks[i], size);
      }
    }
    churn(count, 48);
  } else {
    pthread_t threads[kThreads];
    peak = kRing * 40;
    pthread_barrier_init(&begun, NULL, kThreads + 1);
    pthread_barrier_init(&done, NULL, kThreads + 1);
    for (int i = 0; i < kThreads; ++i) {
      pthread_create(&threads[i], NULL, work, NULL);
    }
    pthread_barrier_wait(&begun);
    churn(count, 40);
    pthread_barrier_wait(&done);
    for (int i = 0; i < kThreads; ++i) {
      pthread_join(threads[i], NULL);
    }
  }
  printf("%ld\n", peak);
  return 0;
}
