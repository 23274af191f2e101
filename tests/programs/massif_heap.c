/* glibc's heap beyond the 8 MiB of brk that Valgrind gives. Arguments: what to do, and how much.
 *   blocks SMALL LARGE   SMALL blocks to 616 bytes, LARGE blocks to 91 kB, every second small block freed, LARGE more
 *   realloc MIB          two blocks that grow by a quarter each time up to MIB and a third of it
 *   waves MIB            the heap grows to MIB and shrinks again, four times
 *   arenas THREADS       each thread allocates 20 MB in an arena of its own and ends before the next one begins
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static unsigned seed = 1;

static size_t draw(size_t limit) {
  seed = seed * 1103515245 + 12345;
  return (seed >> 12) % limit;
}

static char* get(size_t size) {
  char* block = malloc(size);
  if (!block) exit(1);
  block[0] = 1;
  return block;
}

static void blocks(int small, int large) {
  char** kept = calloc((size_t)small + 2 * (size_t)large, sizeof *kept);
  if (!kept) exit(1);
  for (int at = 0; at < small; ++at) kept[at] = get(16 + draw(600));
  for (int at = 0; at < large; ++at) kept[small + at] = get(1000 + draw(90000));
  for (int at = 0; at < small; at += 2) free(kept[at]);
  for (int at = 0; at < large; ++at) kept[small + large + at] = get(1000 + draw(127000));
}

static void grow(size_t limit) {
  char* one = NULL;
  char* other = NULL;
  for (size_t size = 1 << 16; size < limit; size += size / 4) {
    one = realloc(one, size);
    other = realloc(other, size / 3 + 1);
    if (!one || !other) exit(1);
    one[size - 1] = other[size / 3] = 1;
  }
}

static void waves(size_t limit) {
  const int count = (int)(limit / 20000);
  char** kept = calloc((size_t)count, sizeof *kept);
  if (!kept) exit(1);
  for (int wave = 0; wave < 4; ++wave) {
    for (int at = 0; at < count; ++at) kept[at] = get(1 + draw(40000));
    for (int at = count - 1; at >= 0; --at) free(kept[at]);
  }
}

static void* work(void* argument) {
  for (int at = 0; at < 20000; ++at) {
    char* block = get(16 + draw(2000));
    if (at % 2) free(block);
  }
  return argument;
}

int main(int count, char** words) {
  const char* what = count > 2 ? words[1] : "";
  const int much = count > 2 ? atoi(words[2]) : 0;
  if (!strcmp(what, "blocks") && count > 3) {
    blocks(much, atoi(words[3]));
  } else if (!strcmp(what, "realloc")) {
    grow((size_t)much << 20);
  } else if (!strcmp(what, "waves")) {
    waves((size_t)much << 20);
  } else if (!strcmp(what, "arenas")) {
    for (int at = 0; at < much; ++at) {
      pthread_t thread;
      if (pthread_create(&thread, NULL, work, NULL) || pthread_join(thread, NULL)) return 1;
    }
  } else {
    return 2;
  }
  return 0;
}
