/* Starts so many detached threads, at most so many at a time; each allocates and frees so many blocks, one by one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

static atomic_int live;
static int each;

static void* run(void* unused) {
  for (int i = 0; i < each; i++) {
    void* volatile block = malloc(100);
    if (i == 0) usleep(300);
    free(block);
  }
  atomic_fetch_sub(&live, 1);
  return unused;
}

int main(int count, char** words) {
  if (count != 4) return 1;
  each = atoi(words[3]);
  const int threads = atoi(words[1]), at_once = atoi(words[2]);
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (int i = 0; i < threads; i++) {
    while (atomic_load(&live) >= at_once) usleep(50);
    atomic_fetch_add(&live, 1);
    pthread_t thread;
    if (pthread_create(&thread, &detached, run, NULL) != 0) return 1;
  }
  while (atomic_load(&live) != 0) usleep(100);
  usleep(20000);
  return 0;
}
