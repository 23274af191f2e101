/* glibc's malloc with the fault that $FAULT names, for tests of the fuzzer: each check of the fuzzer must find the
 * fault that is meant for it. A fault shows once in 256 operations, so that programs can start. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void __libc_free(void* block);

static int now_faulty(const char* fault) {
  static unsigned turn;
  static const char* wanted;
  static int asked; /* read $FAULT only once: setenv calls realloc while getenv would read the old environment */
  if (!asked) {
    wanted = getenv("FAULT");
    asked = 1;
  }
  return wanted != NULL && strcmp(wanted, fault) == 0 && __atomic_add_fetch(&turn, 1, __ATOMIC_RELAXED) % 256 == 0;
}

static char* last; /* a live block of 256 bytes, or NULL */

void* malloc(size_t size) {
  if (size > 64 && size < PTRDIFF_MAX) {
    if (now_faulty("misaligned")) return (char*)__libc_malloc(size + 16) + 8;
    if (now_faulty("refuses")) return NULL;
    if (now_faulty("crashes")) abort();
    if (size < 256 && last != NULL && now_faulty("twice")) return last;
    if (size < 256) return last = __libc_malloc(256);
  }
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) {
  char* block = __libc_calloc(count, size);
  if (block != NULL && count * size > 64 && now_faulty("dirty")) block[count * size - 1] = 1;
  return block;
}

void* realloc(void* block, size_t size) {
  if (block == last) last = NULL;
  char* moved = __libc_realloc(block, size);
  if (block != NULL && moved != NULL && size > 64 && now_faulty("loses")) moved[24] ^= 1;
  return moved;
}

void free(void* block) {
  if (block == last) last = NULL;
  if (last != NULL && now_faulty("scribbles")) last[8] ^= 1;
  __libc_free(block);
  if (now_faulty("errno")) errno = EINVAL;
}
