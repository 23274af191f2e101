/* Runs the case of tests/allocator/test_exgen.py that the first argument names. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY 5000
#define ZEROS (24UL << 20)
#define LARGE (160UL << 20)

static void *others[MANY];

static long in_rollup(const char *name) { /* exactly: the kernel counts what statm says in batches of pages */
  char text[2048] = "";
  const int file = open("/proc/self/smaps_rollup", O_RDONLY);
  const ssize_t got = read(file, text, sizeof text - 1);
  close(file);
  const char *const found = got > 0 ? strstr(text, name) : NULL;
  return found != NULL ? strtol(found + strlen(name), NULL, 10) * 1024 : -1;
}
static long resident(void) { return in_rollup("Rss:"); }
/* Without pages of files, of which the kernel maps 64 KiB around a fault. */
static long anonymous(void) { return in_rollup("Anonymous:"); }

static void fill(size_t bytes) {
  for (int i = 0; i < MANY; ++i) {
    others[i] = malloc(bytes);
    memset(others[i], 1, bytes);
  }
}
static void drop(void) {
  for (int i = 0; i < MANY; ++i) {
    free(others[i]);
  }
}
static void say(const void *wrong) {
  printf("%p\n", wrong);
  fflush(stdout);
}
static void *nothing(void *unused) { return unused; }
static void *free_twice(void *unused) {
  void *const block = malloc(64);
  void *const other = malloc(64);
  say(block);
  free(block);
  free(block);
  free(other);
  return unused;
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "nothing";
  char stack[64] = "";
  char *block = NULL;
  if (strcmp(what, "nothing") == 0) {
    return 0;
  }
  if (strcmp(what, "threads") == 0) { /* the cases below, in a process that has threads */
    pthread_t thread;
    pthread_create(&thread, NULL, nothing, NULL);
    pthread_join(thread, NULL);
    what = count > 2 ? words[2] : "nothing";
  }
  if (strcmp(what, "resident") == 0) {
    printf("%ld\n", resident());
  } else if (strcmp(what, "anonymous") == 0) {
    printf("%ld\n", anonymous());
  } else if (strcmp(what, "twice") == 0) {
    fill(64);
    block = malloc(64);
    say(block);
    free(block);
    free(block);
    drop();
  } else if (strcmp(what, "twice-in-thread") == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, free_twice, NULL);
    pthread_join(thread, NULL);
  } else if (strcmp(what, "twice-between") == 0) {
    fill(64);
    block = malloc(64);
    say(block);
    free(block);
    free(others[0]);
    free(block);
    others[0] = NULL;
    drop();
  } else if (strcmp(what, "twice-span") == 0) {
    block = malloc(300000);
    say(block);
    free(block);
    free(block);
  } else if (strcmp(what, "twice-large") == 0) {
    block = malloc(3000000);
    say(block);
    free(block);
    free(block);
  } else if (strcmp(what, "foreign") == 0) {
    free(malloc(10));
    say(stack + 16);
    char *volatile wrong = stack + 16;
    free(wrong);
  } else if (strcmp(what, "inside") == 0) {
    fill(96);
    block = malloc(96);
    say(block + 32);
    char *volatile wrong = block + 32;
    free(wrong);
    drop();
  } else if (strcmp(what, "inside-span") == 0) {
    block = malloc(300000);
    say(block + 4096);
    char *volatile wrong = block + 4096;
    free(wrong);
  } else if (strcmp(what, "realloc-foreign") == 0) {
    free(malloc(10));
    say(stack + 16);
    char *volatile wrong = stack + 16;
    wrong = realloc(wrong, 100);
  } else if (strcmp(what, "realloc-freed") == 0) {
    block = malloc(300000);
    say(block);
    free(block);
    char *volatile wrong = block;
    wrong = realloc(wrong, 200000);
  } else if (strcmp(what, "falls") == 0) { /* anonymous: before, full, and after the last free with no further call */
    const long before = anonymous();
    fill(20000);
    const long full = anonymous();
    drop();
    const long after = anonymous();
    printf("%ld %ld %ld\n", before, full, after);
  } else if (strcmp(what, "phases") == 0) { /* the same three figures, with the load repeated without a pause */
    const long before = resident();
    long full = 0;
    for (int i = 0; i < 8; ++i) {
      fill(20000);
      full = resident();
      drop();
    }
    const long after = resident();
    sleep(2);
    printf("%ld %ld %ld %ld\n", before, full, after, resident());
  } else if (strcmp(what, "zeros") == 0) { /* resident: the most, while one block of zeros is in use at a time */
    long most = 0;
    free(malloc(100)); /* the run time that pays for purges begins with the first small block */
    for (int i = 0; i < 40; ++i) {
      char *const zeros = calloc(1, ZEROS);
      memset(zeros, 1, ZEROS);
      const long now = resident();
      most = now > most ? now : most;
      free(zeros);
    }
    printf("%ld\n", most);
  } else if (strcmp(what, "large") == 0) { /* resident: before, full, after the last free, that of a large block */
    const long before = resident();
    char *const large = malloc(LARGE);
    memset(large, 1, LARGE);
    fill(20000);
    const long full = resident();
    drop();
    free(large);
    printf("%ld %ld %ld\n", before, full, resident());
  } else if (strcmp(what, "trim") == 0) {
    fill(500);
    drop();
    const long before = resident();
    const int first = malloc_trim(0);
    const long after = resident();
    printf("%ld %d %ld %d\n", before, first, after, malloc_trim(0));
  } else if (strcmp(what, "limit") == 0) { /* how many MiB can be allocated */
    int got = 0;
    while (got < 100000 && (block = malloc(1 << 20)) != NULL) {
      ++got;
    }
    printf("%d\n", got);
  } else if (strcmp(what, "grow") == 0) { /* whether a block can grow into memory that a freed one holds */
    char *const large = malloc(4 * LARGE);
    char *const other = malloc(LARGE);
    large[4 * LARGE - 1] = 7;
    free(other);
    char *const grown = realloc(large, 4 * LARGE + LARGE / 2);
    printf("%d\n", grown != NULL && grown[4 * LARGE - 1] == 7);
  } else if (strcmp(what, "pages") == 0) { /* resident, and what malloc_trim says, with blocks between free pages */
    fill(1000);
    for (int i = 0; i < MANY; ++i) {
      if (i % 16 != 0) {
        free(others[i]);
      }
    }
    const long before = resident();
    const int said = malloc_trim(0);
    printf("%ld %d %ld\n", before, said, resident());
  } else if (strcmp(what, "kept") == 0) { /* of a freed large block: mallinfo's bytes to return, before and after */
    char *const large = malloc(LARGE);
    char *const other = malloc(LARGE / 8);
    free(other);
    const size_t before = mallinfo2().keepcost;
    malloc_trim(0);
    printf("%zu %zu %d\n", before, mallinfo2().keepcost, large != NULL);
  } else if (strcmp(what, "pairs") == 0) { /* as many pairs of malloc and free as the last word says */
    for (long left = strtol(words[count - 1], NULL, 10); left > 0; --left) {
      free(malloc(64));
    }
  } else {
    return 2;
  }
  return 0;
}
