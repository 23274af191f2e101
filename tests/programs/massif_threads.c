/* Threads, one after the other where it matters, so that the calls come in one order in any layout and
 * schedule. With MALLOC_ARENA_MAX=1 only stacks are mapped; with 2 the first thread's arena is, too: 128 MiB
 * reserved and cut to an aligned 64 MiB. (A second arena could find the first one's cut-off usable: that
 * depends on addresses.)
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, BLOCKS = 64 };

static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static int turn;

static void* work(void* argument) {
  const int me = (int)(long)argument;
  char* block[BLOCKS];
  pthread_mutex_lock(&turn_lock);
  while (turn != me) pthread_cond_wait(&turn_changed, &turn_lock);
  for (int at = 0; at < BLOCKS; ++at) {
    const size_t size = (size_t)(1000 + 300 * at);
    block[at] = malloc(size);
    if (!block[at]) abort();
    memset(block[at], me, size);
  }
  char* large = malloc((size_t)(me + 1) << 20);
  if (!large) abort();
  large[0] = 1;
  for (int at = 0; at < BLOCKS; ++at) free(block[at]);
  free(large);
  pthread_mutex_unlock(&turn_lock);
  return NULL;
}

int main(void) {
  pthread_t thread[THREADS];
  for (int round = 0; round < 2; ++round) {
    turn = -1; /* no thread maps anything before all stacks exist */
    for (long at = 0; at < THREADS; ++at)
      if (pthread_create(&thread[at], NULL, work, (void*)at) != 0) return 1;
    /* Each thread ends before the next continues, because a thread frees its thread cache as its last act. */
    for (int at = 0; at < THREADS; ++at) {
      pthread_mutex_lock(&turn_lock);
      turn = at;
      pthread_cond_broadcast(&turn_changed);
      pthread_mutex_unlock(&turn_lock);
      pthread_join(thread[at], NULL);
    }
  }
  return 0;
}
