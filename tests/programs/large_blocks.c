/* A program with a known gain: 40 MiB blocks are above the 32 MiB that glibc's mmap threshold adapts to, so by
 * default each is mapped, faulted in page by page and unmapped again. With mmap_threshold above the block and
 * trim_threshold above that, the first block's memory serves all the others. -DROUNDS=5 does less of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef ROUNDS
#define ROUNDS 12
#endif

int main(void) {
  unsigned long sum = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    const size_t size = 40UL << 20;
    char* block = malloc(size);
    if (block == NULL) return 1;
    memset(block, round, size);
    __asm__ volatile("" : : "r"(block) : "memory");
    sum += (unsigned char)block[size / 2];
    free(block);
  }
  printf("%lu\n", sum);
  return 0;
}
