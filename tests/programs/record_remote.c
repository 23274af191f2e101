/* Threads that free each other's memory: record_remote [THREADS] [ROUNDS] Each round allocates a block. Every
 * second block goes into a mailbox, and the thread frees the block that was there, which mostly belongs to another
 * thread. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { BOXES = 64 };
static _Atomic(void*) boxes[BOXES];
static long rounds = 125000;

static void* work(void* argument) {
  uint64_t state = 88172645463325252u + (uintptr_t)argument * 977;
  for (long i = 0; i < rounds; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    char* block = malloc(16 + state % 500);
    block[0] = 1;
    free((state >> 20) & 1 ? atomic_exchange(&boxes[(state >> 32) % BOXES], block) : block);
  }
  return NULL;
}

int main(int count, char** words) {
  const int threads = count > 1 ? atoi(words[1]) : 4;
  if (count > 2) rounds = atol(words[2]);
  pthread_t ids[256];
  for (int i = 0; i < threads && i < 256; i++) pthread_create(&ids[i], NULL, work, (void*)(uintptr_t)i);
  for (int i = 0; i < threads && i < 256; i++) pthread_join(ids[i], NULL);
  for (int i = 0; i < BOXES; i++) free(boxes[i]);
  return 0;
}
