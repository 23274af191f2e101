// Listens to its malloc, or not: fills a store with blocks until it holds a number of bytes.
//
//   listens usable     counts the usable size of each block, which each malloc rounds up in its own way
//   listens requested  asks for the usable size and counts the requested size: the same calls under every malloc
//   listens chance     holds up to a half more in each run, as the process id decides
//
// It sleeps for a third of a second, so that replays are faster.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kBlocks = 1000000, kSize = 41 };
static char* store[kBlocks];

int main(int count, char** words) {
  const char* mode = count > 1 ? words[1] : "usable";
  size_t limit = 8 << 20;
  if (strcmp(mode, "chance") == 0) {
    limit += (size_t)(getpid() % 7) * (limit / 14);
  }
  size_t held = 0;
  int blocks = 0;
  while (held < limit && blocks < kBlocks) {
    char* block = malloc(kSize);
    if (block == NULL) {
      return 1;
    }
    memset(block, 1, kSize);
    store[blocks++] = block;
    const size_t usable = malloc_usable_size(block);
    held += strcmp(mode, "usable") == 0 ? usable : kSize;
  }
  const struct timespec pause = {.tv_nsec = 330000000};
  nanosleep(&pause, NULL);
  while (blocks > 0) {
    free(store[--blocks]);
  }
  puts("done");
  return 0;
}
