// A program like a Rust one with a jemalloc crate: jemalloc is linked in, its functions have the prefix _rjem_ (objcopy gives
// it to Debian's libjemalloc.a, see tests/embedded.py), and its variable is _RJEM_MALLOC_CONF. malloc stays the C library's.
//
// It fills 64 MiB with blocks of 4 MiB and frees them, then fills 64 MiB with small blocks. jemalloc does not take small
// blocks from such long free extents, so the second half comes on top of the first unless free pages go back at once
// (dirty_decay_ms:0), which saves nearly half of the peak.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void* _rjem_malloc(size_t size);
void _rjem_free(void* block);

char* rjem_getenv(const char* name);
char* rjem_getenv(const char* name) { return getenv(strcmp(name, "MALLOC_CONF") == 0 ? "_RJEM_MALLOC_CONF" : name); }

enum { kLarge = 16, kLargeBytes = 4 << 20, kSmall = 1 << 18, kSmallBytes = 256 };

int main(int argc, char** argv) {
  static char* blocks[kSmall];
  for (int i = 0; i < kLarge; ++i) {
    blocks[i] = memset(_rjem_malloc(kLargeBytes), 1, kLargeBytes);
  }
  for (int i = 0; i < kLarge; ++i) {
    _rjem_free(blocks[i]);
  }
  for (int i = 0; i < kSmall; ++i) {
    blocks[i] = memset(_rjem_malloc(kSmallBytes), 1, kSmallBytes);
  }
  if (argc > 1) {
    usleep((useconds_t)atoi(argv[1]) * 1000);
  }
  puts("done");
  return 0;
}
