// Measures the CPU time of aligned allocations, whose largest value bounds the saving (study/saving_bound.py).
//
//     gcc -O1 -fno-builtin tools/aligned_calls.c -o aligned_calls && ./aligned_calls
//     LD_PRELOAD=libjemalloc.so.2 ./aligned_calls
//
// Each line replaces one of the live blocks at random by an aligned block of random size, many times. It gives the
// nanoseconds that one pair of memalign and free takes. glibc 2.36 allocates size + alignment bytes, splits the block
// and sorts the parts into lists of free blocks. So a call takes longer the more sizes of free blocks there are.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
  size_t alignment, largest, live;
  long pairs;
} Case;

static const Case kCases[] = {
    {32, 600, 100, 300000},       {32, 600, 20000, 300000},     {64, 2000, 100, 300000},
    {64, 2000, 20000, 300000},    {64, 65536, 1000, 100000},    {256, 131000, 5000, 20000},
    {4096, 600, 100, 300000},     {4096, 600, 20000, 300000},   {4096, 65536, 2000, 20000},
    {16384, 131000, 5000, 20000}, {65536, 16384, 20000, 20000}, {1048576, 65536, 1000, 10000},
};

static double cpu_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double pair_s(const Case* of) {
  char** blocks = calloc(of->live, sizeof *blocks);
  uint64_t state = 88172645463325252U;
  const double began = cpu_s();
  for (long i = 0; i < of->pairs; ++i) {
    state ^= state << 13U;
    state ^= state >> 7U;
    state ^= state << 17U;
    char** block = &blocks[state % of->live];
    free(*block);
    *block = memalign(of->alignment, 16 + (state >> 32U) % of->largest);
    **block = 1;
  }
  const double took = cpu_s() - began;
  for (size_t i = 0; i < of->live; ++i) {
    free(blocks[i]);
  }
  free(blocks);
  return took / (double)of->pairs;
}

int main(void) {
  puts("| alignment | largest block | live blocks | ns for memalign and free |\n|---|---|---|---|");
  for (size_t i = 0; i < sizeof kCases / sizeof *kCases; ++i) {
    const Case* of = &kCases[i];
    printf("| %zu | %zu | %zu | %.0f |\n", of->alignment, of->largest, of->live, 1e9 * pair_s(of));
    fflush(stdout);
  }
  return 0;
}
