#include <pthread.h>
#include <stdlib.h>

#include "words.h"

struct half {
  void (*f)(int);
  int from, to;
};

static void* run(void* argument) {
  struct half* const half = argument;
  for (int i = half->from; i < half->to; ++i) {
    half->f(i);
  }
  free(half);
  return NULL;
}

void in_parallel(void (*f)(int), int n) {
  pthread_t threads[2];
  for (int t = 0; t < 2; ++t) {
    struct half* const half = malloc(sizeof *half);
    *half = (struct half){f, t * n / 2, (t + 1) * n / 2};
    pthread_create(&threads[t], NULL, run, half);
  }
  for (int t = 0; t < 2; ++t) {
    pthread_join(threads[t], NULL);
  }
}
