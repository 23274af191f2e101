/* Partial munmap: a hole in the middle, both ends, across two mappings, over a hole, an odd length. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>

#define MIB (1UL << 20)

int main(void) {
  for (int round = 0; round < 4; ++round) {
    char* block = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return 1;
    for (unsigned long at = 0; at < 32 * MIB; at += 4 * MIB) block[at] = 1;
    if (munmap(block + 8 * MIB, 4 * MIB) != 0) return 1;
    if (munmap(block + 20 * MIB, 4097) != 0) return 1;
    if (munmap(block, 10 * MIB) != 0) return 1; /* runs into the hole */
    if (mmap(block + 6 * MIB, 20 * MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
      return 1;
    if (munmap(block + 7 * MIB, 25 * MIB - 5000) != 0) return 1;
    if (round % 2 != 0 && munmap(block, 32 * MIB) != 0) return 1; /* mostly nothing there */
  }
  return 0;
}
