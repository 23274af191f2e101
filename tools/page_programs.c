/* Three programs for huge pages: one that gains from them, one that does not care, one that pays.

     large   keeps 300 MiB of small blocks and reads them in random order: TLB misses and page faults
     small   keeps 1 MiB of small blocks and reads them in random order
     sparse  keeps 150 buffers of 4 MiB, of which it uses the first 64 KiB

   gcc -O2 -o pages tools/page_programs.c
   .venv/bin/heapwright tune --budget 4m -- ./pages large */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

/* Reads `reads` blocks in random order; returns a sum that depends on each. */
static uint64_t read_blocks(char** blocks, size_t count, size_t span, size_t reads) {
  uint64_t state = 1;
  uint64_t sum = 0;
  for (size_t i = 0; i < reads; ++i) {
    char* const block = blocks[next(&state) % count];
    sum += (unsigned char)block[next(&state) % span];
  }
  return sum;
}

int main(int argc, char** argv) {
  const char* const kind = argc > 1 ? argv[1] : "";
  const int sparse = strcmp(kind, "sparse") == 0;
  const size_t size = sparse ? (size_t)4 << 20 : 100;
  const size_t used = sparse ? (size_t)64 << 10 : size;
  size_t count = 0;
  size_t reads = 0;
  if (strcmp(kind, "large") == 0) {
    count = ((size_t)300 << 20) / 112;
    reads = 8000000;
  } else if (strcmp(kind, "small") == 0) {
    count = ((size_t)1 << 20) / 112;
    reads = 60000000;
  } else if (sparse) {
    count = 150;
    reads = 30000000;
  } else {
    fprintf(stderr, "usage: pages large|small|sparse\n");
    return 2;
  }
  char** const blocks = malloc(count * sizeof *blocks);
  if (blocks == NULL) {
    return 1;
  }
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = malloc(size);
    if (blocks[i] == NULL) {
      return 1;
    }
    memset(blocks[i], (int)(i % 251), used);
  }
  printf("%llu\n", (unsigned long long)read_blocks(blocks, count, used, reads));
  for (size_t i = 0; i < count; ++i) {
    free(blocks[i]);
  }
  free(blocks);
  return 0;
}
