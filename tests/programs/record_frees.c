/* Allocates and frees blocks, so many times; then starts 3000 threads one by one. Each makes a few requests, and frees
 * 200 blocks that the main thread has allocated. Usage: record_frees COUNT */
#include <pthread.h>
#include <stdlib.h>

enum { kThreads = 3000, kBlocks = 200, kOwn = 32 };

static void* blocks[kBlocks];

static void* work(void* nothing) {
  for (int i = 0; i < kOwn; ++i) {
    void* volatile block = malloc(60);
    free(block);
  }
  for (int i = 0; i < kBlocks; ++i) {
    free(blocks[i]);
  }
  return nothing;
}

int main(int words, char** argv) {
  const long count = words > 1 ? atol(argv[1]) : 0;
  for (long i = 0; i < count; ++i) {
    void* volatile block = malloc(50);
    free(block);
  }
  for (int i = 0; i < kThreads; ++i) {
    pthread_t thread;
    for (int k = 0; k < kBlocks; ++k) {
      blocks[k] = malloc(100);
    }
    if (pthread_create(&thread, NULL, work, NULL) != 0) return 1;
    pthread_join(thread, NULL);
  }
  return 0;
}
