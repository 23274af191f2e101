// A long program that reaches its peak early: slow SECONDS allocates 24 MiB in small blocks, prints "built", and sleeps.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBlocks = 300000 };

static char* blocks[kBlocks];

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? strtod(argv[1], NULL) : 10;
  for (unsigned i = 0; i < kBlocks; ++i) {
    const size_t size = 24 + i * 7919U % 90;
    blocks[i] = malloc(size);
    memset(blocks[i], 1, size);
  }
  puts("built");
  (void)fflush(stdout);
  const struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  (void)nanosleep(&rest, NULL);
  puts("done");
  return blocks[kBlocks - 1][0] - 1;
}
