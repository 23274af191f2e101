/* Makes mapping calls whose number and sizes depend only on glibc's settings. Every run under the same settings
 * makes the same calls, so a search that minimises mapping_calls can be repeated exactly. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
  static void* blocks[64];
  unsigned long sum = 0;
  for (int round = 0; round < 400; ++round) {
    const int slot = round * 7 % 64;
    const size_t size = 1000UL + (size_t)(round * 7919 % 300) * 1000UL;
    free(blocks[slot]);
    blocks[slot] = malloc(size);
    if (blocks[slot] == NULL) return 1;
    memset(blocks[slot], round, size);
    __asm__ volatile("" : : "r"(blocks[slot]) : "memory");
    sum += size;
  }
  for (int slot = 0; slot < 64; ++slot) free(blocks[slot]);
  printf("%lu\n", sum);
  return 0;
}
