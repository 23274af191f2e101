// Holds 64 MiB for a fifth of a second, or more. holders FILE reads them as pages of FILE through a mapping. Without an
// argument, they are malloc blocks of 1,000 bytes, three in four of which are freed first.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { kMib = 1 << 20, kBlocks = 64 * kMib / 1008 };

// Longer on an emulated machine (PACE in tests/processes.py).
static void rest(void) {
  const char* pace = getenv("HEAPWRIGHT_TEST_PACE");
  const long ms = 200 * (pace != NULL ? atol(pace) : 1);
  struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static int from_file(const char* path) {
  const int file = open(path, O_RDONLY);
  const char* const data = mmap(NULL, 64 * kMib, PROT_READ, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) return 1;
  long sum = 0;
  for (int i = 0; i < 64 * kMib; i += 4096) sum += data[i];
  rest();
  return (void)printf("%ld\n", sum), 0;
}

int main(int count, char** words) {
  if (count > 1) return from_file(words[1]);
  char** const blocks = malloc(kBlocks * sizeof *blocks);
  for (int i = 0; i < kBlocks; i++) memset(blocks[i] = malloc(1000), i, 1000);
  for (int i = 0; i < kBlocks; i++)
    if (i % 4) free(blocks[i]);
  char* const more = malloc(16 * kMib);  // fits into no hole, so the peak is above the live bytes
  memset(more, 1, 16 * kMib);
  rest();
  return (void)printf("%d\n", more[5] + blocks[0][1]), 0;
}
