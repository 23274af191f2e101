/* MAP_FIXED over a reserve: Massif counts the committed part twice and one copy outlives the munmap. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>

#define MIB (1UL << 20)

int main(void) {
  char* reserve = mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserve == MAP_FAILED) return 1;
  for (unsigned long at = 0; at < 8; ++at) {
    char* part = mmap(reserve + at * 4 * MIB, 2 * MIB + 100 * at, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (part == MAP_FAILED) return 1;
    part[0] = 1;
  }
  /* Once more over the first commit: three copies of those pages. */
  if (mmap(reserve, MIB, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return 1;
  if (munmap(reserve + 3 * MIB, 20 * MIB) != 0) return 1;
  if (munmap(reserve, 64 * MIB) != 0) return 1;
  char* later = mmap(NULL, 40 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (later == MAP_FAILED) return 1;
  return munmap(later, 40 * MIB) != 0;
}
