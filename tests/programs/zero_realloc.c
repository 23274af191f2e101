/* A library: glibc's malloc, but realloc to size 0 returns a block, as mimalloc's does. With a main (-DMAIN): a program
 * that makes 1000 such calls. */
#include <stddef.h>

#ifdef MAIN
#include <stdlib.h>
int main(void) {
  for (int i = 0; i < 1000; ++i) {
    void* volatile block = malloc(100);
    void* volatile empty = realloc(block, 0);
    free(empty);
  }
  return 0;
}
#else
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void __libc_free(void*);
void* malloc(size_t size) { return __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
void free(void* block) { __libc_free(block); }
void* realloc(void* block, size_t size) {
  if (size != 0 || block == NULL) return __libc_realloc(block, size);
  __libc_free(block);
  return __libc_malloc(0);
}
#endif
