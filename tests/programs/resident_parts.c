// Has known amounts of each part of resident memory: 30 MiB that it maps itself, small blocks of which
// it frees every second one, and a large block that it touches in part. With the argument 'fork' a
// child process allocates 20 MiB more.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kBlocks = 60000, kBytes = 1000, kMiB = 1 << 20 };

static char* blocks[kBlocks];

// Gives the recorder time and events for readings of resident memory.
static void pass_time(void) {
  for (int i = 0; i < 20; ++i) {
    usleep(5000);
    for (int k = 0; k < 100; ++k) {
      free(malloc(10));
    }
  }
}

int main(int argc, char** argv) {
  char* const own = mmap(NULL, 30 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) {
    return 1;
  }
  memset(own, 1, 30 * kMiB);
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(kBytes);
    memset(blocks[i], 1, kBytes);
  }
  if (argc > 1 && strcmp(argv[1], "fork") == 0) {
    if (fork() == 0) {
      char* const more = malloc(20 * kMiB);
      memset(more, 1, 20 * kMiB);
      pass_time();
      _exit(more[1] == 1 ? 0 : 1);
    }
    int status = 1;
    wait(&status);
    return status;
  }
  pass_time();
  for (int i = 0; i < kBlocks; i += 2) {
    free(blocks[i]);
  }
  char* const large = malloc(40 * kMiB);
  memset(large, 1, 10 * kMiB);
  pass_time();
  return large[1] == 1 ? 0 : 1;
}
