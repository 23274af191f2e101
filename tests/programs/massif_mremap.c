/* mremap: shrink in place, grow (in place or moved, depending on the layout), move to a fixed address, and move a
 * range that is counted twice, which Massif removes twice. Only the last two depend on addresses, which are fixed. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>

#define MIB (1UL << 20)
#define RW (PROT_READ | PROT_WRITE)
#define ANON (MAP_PRIVATE | MAP_ANONYMOUS)

int main(void) {
  char* block = mmap(NULL, 16 * MIB, RW, ANON, -1, 0);
  if (block == MAP_FAILED) return 1;
  block[0] = 1;
  block = mremap(block, 16 * MIB, 5 * MIB + 12345, 0);
  if (block == MAP_FAILED) return 1;
  block = mremap(block, 5 * MIB + 12345, 24 * MIB, MREMAP_MAYMOVE);
  if (block == MAP_FAILED) return 1;
  char* arena = mmap(NULL, 128 * MIB, PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
  if (arena == MAP_FAILED) return 1;
  char* moved = mremap(block, 24 * MIB, 30 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, arena);
  if (moved != arena) return 1;
  char* twice = mmap(arena + 40 * MIB, 8 * MIB, RW, ANON | MAP_FIXED, -1, 0);
  if (twice == MAP_FAILED) return 1;
  twice[0] = 1;
  moved = mremap(twice, 8 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, arena + 80 * MIB);
  if (moved == MAP_FAILED) return 1;
  char* last = mmap(NULL, 32 * MIB, RW, ANON, -1, 0);
  if (last == MAP_FAILED) return 1;
  return munmap(arena, 128 * MIB) != 0;
}
