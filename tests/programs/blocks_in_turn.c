// Fills blocks of 40 MiB, one after the other, so that readings of resident memory are due when one
// is freed, or with the argument 'realloc' when it grows and shrinks.
#include <stdlib.h>
#include <string.h>

enum { kBytes = 40 << 20 };

int main(int argc, char** argv) {
  (void)argv;
  for (int i = 0; i < 12; ++i) {
    char* block = malloc(kBytes);
    if (block == NULL) {
      return 1;
    }
    memset(block, i, kBytes);
    if (argc > 1) {
      block = realloc(block, kBytes + kBytes / 4);
      memset(block + kBytes, i, kBytes / 4);
      block = realloc(block, kBytes);
    }
    free(block);
  }
  return 0;
}
