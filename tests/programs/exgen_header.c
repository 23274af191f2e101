/* Checks every function of exgen.h, compiled as C and as C++. */
#include "exgen.h"

#include <stdio.h>
#include <string.h>

#define CHECK(what)                              \
  do {                                           \
    if (!(what)) {                               \
      printf("line %d: %s\n", __LINE__, #what);  \
      return 1;                                  \
    }                                            \
  } while (0)

int main(void) {
  exgen_statistics before, with, after;
  exgen_get_statistics(&before);
  unsigned char *one = (unsigned char *)exgen_malloc(100);
  unsigned char *two = (unsigned char *)exgen_calloc(10, 100);
  unsigned char *large = (unsigned char *)exgen_malloc(3000000);
  unsigned char *aligned = (unsigned char *)exgen_aligned_alloc(4096, 100);
  CHECK(one && two && large && aligned);
  CHECK((size_t)aligned % 4096 == 0);
  CHECK(exgen_usable_size(one) >= 100 && exgen_usable_size(two) >= 1000 && exgen_usable_size(large) >= 3000000);
  CHECK(exgen_usable_size(&before) == 0);
  for (int i = 0; i < 1000; ++i) {
    CHECK(two[i] == 0);
  }
  exgen_get_statistics(&with);
  CHECK(with.blocks == before.blocks + 3);
  CHECK(with.large - before.large >= 3000000);
  CHECK(with.live - before.live == exgen_usable_size(one) + exgen_usable_size(two) + exgen_usable_size(large) +
                                       exgen_usable_size(aligned));
  CHECK(with.superblocks >= with.live - with.large);
  CHECK(with.reserved >= with.superblocks);
  memset(one, 7, 100);
  one = (unsigned char *)exgen_realloc(one, 5000);
  CHECK(one && one[0] == 7 && one[99] == 7);
  exgen_free(one);
  exgen_free_sized(two, 1000);
  exgen_free(large);
  exgen_free(aligned);
  exgen_free(NULL);
  exgen_trim();
  exgen_become_threaded();
  CHECK(exgen_trim() == 0);
  exgen_get_statistics(&after);
  CHECK(after.live == before.live && after.blocks == before.blocks && after.large == before.large);
  CHECK(after.kept == 0);
  printf("right\n");
  return 0;
}
