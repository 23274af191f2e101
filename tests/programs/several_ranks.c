// Three children allocate and free 20,000 blocks each, and 50 aligned ones. A second thread of each allocates thrice.
// They run side by side, as the ranks of MPI do.
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kRanks = 3, kBlocks = 20000, kAligned = 50, kLive = 100 };

static void* seldom(void* unused) {
  (void)unused;
  for (int i = 0; i < 3; ++i) {
    char* volatile block = malloc(100);
    *block = 1;
  }
  return NULL;
}

static void rank(void) {
  static char* volatile blocks[kLive];
  pthread_t thread;
  if (pthread_create(&thread, NULL, seldom, NULL) != 0 || pthread_join(thread, NULL) != 0) {
    _exit(1);
  }
  for (int i = 0; i < kBlocks + kAligned; ++i) {
    free(blocks[i % kLive]);
    blocks[i % kLive] = i < kBlocks ? malloc(64) : aligned_alloc(256, 256);
  }
}

int main(void) {
  for (int i = 0; i < kRanks; ++i) {
    if (fork() == 0) {
      rank();
      exit(0);
    }
  }
  int status;
  while (wait(&status) > 0) {
    if (status != 0) {
      return 1;
    }
  }
  return 0;
}
