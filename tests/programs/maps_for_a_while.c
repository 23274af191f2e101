// Allocates blocks over about half a second, and has a mapping of its own in the first fifth of it.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef OWN_BYTES
#define OWN_BYTES (32 << 20)
#endif

int main(void) {
  char* own = mmap(NULL, OWN_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (own == MAP_FAILED) {
    return 1;
  }
  memset(own, 1, OWN_BYTES);
  for (int i = 0; i < 50; i++) {
    if (i == 10) {
      munmap(own, OWN_BYTES);
    }
    for (int k = 0; k < 2000; k++) {
      char* block = malloc(100);
      if (block == NULL) {
        return 1;
      }
      memset(block, 1, 100);
    }
    usleep(10000);
  }
  return 0;
}
