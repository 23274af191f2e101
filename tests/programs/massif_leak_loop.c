/* Reserve, commit over it, unmap, twenty times: never more than 10 MiB mapped, Massif reports 20 times that.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>

#define SIZE (10UL << 20)

int main(void) {
  for (int round = 0; round < 20; ++round) {
    char* reserve = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserve == MAP_FAILED) return 1;
    char* commit =
        mmap(reserve, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (commit == MAP_FAILED) return 1;
    commit[round * 4096] = 1;
    if (munmap(reserve, SIZE) != 0) return 1;
  }
  return 0;
}
