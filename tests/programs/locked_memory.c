/* Locks all its memory, as real-time programs do. MADV_DONTNEED then fails, and pages that malloc meant to purge
 * keep their contents. calloc must return zeroed memory nevertheless. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCKS = 100, SIZES = 3 };

int main(void) {
  static const size_t sizes[SIZES] = {200, 20000, 200000};
  static unsigned char* blocks[BLOCKS];
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 77;
  for (int round = 0; round < 4; ++round) {
    for (int kind = 0; kind < SIZES; ++kind) {
      for (int i = 0; i < BLOCKS; ++i) {
        if ((blocks[i] = calloc(1, sizes[kind])) == NULL) return 77; /* more than may be locked */
        for (size_t at = 0; at < sizes[kind]; ++at) {
          if (blocks[i][at] != 0) {
            fprintf(stderr, "calloc of %zu bytes is not zero at offset %zu\n", sizes[kind], at);
            return 1;
          }
        }
        memset(blocks[i], 0xff, sizes[kind]);
      }
      for (int i = 0; i < BLOCKS; ++i) free(blocks[i]);
    }
  }
  return 0;
}
