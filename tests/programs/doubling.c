// Doubles a block as a vector of C++ does: allocates a new one, copies, frees the old one. Then it
// fills the new half. The last block has 32 MiB, so at most 32 MiB are ever touched.
#include <stdlib.h>
#include <string.h>

int main(void) {
  size_t size = 1 << 20;
  char* block = malloc(size);
  memset(block, 1, size);
  while (size < ((size_t)32 << 20)) {
    char* twice = malloc(2 * size);
    memcpy(twice, block, size);
    free(block);
    memset(twice + size, 1, size);
    block = twice;
    size *= 2;
  }
  int last = block[size - 1];
  free(block);
  return last == 1 ? 0 : 1;
}
