/* Only grows and leaves without unmapping: Massif's own 'peak' label is stale here, its largest snapshot is
 * not. A failing call in between must count for nothing. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
  for (unsigned long round = 1; round <= 10; ++round) {
    char* block = mmap(NULL, round << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return 1;
    if (mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) return 1;
    if (mmap(NULL, 1UL << 20, PROT_READ, MAP_PRIVATE, -1, 0) != MAP_FAILED) return 1;
    block[0] = 1;
  }
  _exit(0);
}
