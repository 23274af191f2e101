/* glibc's malloc in a sawtooth: brk heap grown and trimmed (below Valgrind's 8 MiB of brk), blocks above the
 * mmap threshold, realloc of such a block (mremap). */
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 900 };

int main(void) {
  static char* block[BLOCKS];
  for (int tooth = 0; tooth < 6; ++tooth) {
    for (int at = 0; at < BLOCKS; ++at) {
      const size_t size = 64 + (size_t)((at * 2654435761U) >> 8) % (size_t)(2000 + 1500 * tooth);
      block[at] = malloc(size);
      if (!block[at]) return 1;
      memset(block[at], at, size);
    }
    char* large = malloc((size_t)(20 + tooth) << 20);
    if (!large) return 1;
    large[0] = 1;
    char* larger = realloc(large, (size_t)(45 + tooth) << 20);
    if (!larger) return 1;
    larger[1] = 1;
    for (int at = BLOCKS - 1; at >= 0; --at) free(block[at]);
    free(larger);
  }
  return 0;
}
