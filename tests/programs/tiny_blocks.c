/* A program with a known gain of memory: a million blocks of 16 bytes. glibc needs 32 bytes for each of them. Allocators
 * with size classes need 16, so their peak is about half. OWN_BYTES is memory of the program that is not malloc's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef BLOCKS
#define BLOCKS 1000000
#endif

#ifndef OWN_BYTES
#define OWN_BYTES 1
#endif

enum { kBlocks = BLOCKS };

static char own[OWN_BYTES];

int main(void) {
  char** blocks = malloc(kBlocks * sizeof(char*));
  unsigned long sum = 0;
  memset(own, 1, sizeof own);
  if (blocks == NULL) return 1;
  for (int i = 0; i < kBlocks; ++i) {
    blocks[i] = malloc(16);
    if (blocks[i] == NULL) return 1;
    memset(blocks[i], i, 16);
  }
  for (int i = 0; i < kBlocks; ++i) {
    sum += (unsigned char)blocks[i][7];
    free(blocks[i]);
  }
  free(blocks);
  printf("%lu\n", sum + (unsigned char)own[sum % sizeof own]);
  return 0;
}
