/* A malloc that never frees memory. $BUMP makes it crash, hang or hand out overlapping blocks. With -DWITH_MAIN it
 * is a program that has this malloc linked in. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char pool[256UL << 20] __attribute__((aligned(16)));
static size_t used;

void* malloc(size_t size) {
  const char* mood = getenv("BUMP");
  if (mood != NULL && strcmp(mood, "crash") == 0) abort();
  if (mood != NULL && strcmp(mood, "hang") == 0) pause();
  size_t whole = ((size + 15) & ~15UL) + 16;
  if (mood != NULL && strcmp(mood, "overlap") == 0 && size > 64) whole -= 48; /* the next block begins in this one */
  const size_t at = __atomic_fetch_add(&used, whole, __ATOMIC_RELAXED);
  if (at + whole > sizeof pool) return NULL;
  *(size_t*)(pool + at) = size;
  return pool + at + 16;
}

void free(void* block) {
  (void)block;
}

void* calloc(size_t count, size_t size) {
  return malloc(count * size); /* fresh memory is zero */
}

void* realloc(void* block, size_t size) {
  void* fresh = malloc(size);
  if (block != NULL && fresh != NULL) {
    const size_t before = *(size_t*)((char*)block - 16);
    memcpy(fresh, block, before < size ? before : size);
  }
  return fresh;
}

#ifdef WITH_MAIN
int main(void) {
  char* volatile block = malloc(1000);
  memset(block, 1, 1000);
  free(block);
  return 0;
}
#endif
