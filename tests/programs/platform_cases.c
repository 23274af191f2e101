/* Calls every function of malloc that all C libraries have, ends many threads, forks among threads,
   and frees from other threads. Prints `ok N`, with N the blocks that it allocated by malloc. Each
   check names itself on stderr if it fails. With an argument, an emulator runs it. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;
#define CHECK(what)                              \
  do {                                           \
    if (!(what)) {                               \
      fprintf(stderr, "failed: %s\n", #what);    \
      failures++;                                \
    }                                            \
  } while (0)

enum { kThreads = 4, kRounds = 200, kBlocks = 64 };

static void* passed[kThreads];

static void* churn(void* argument) {
  const uintptr_t self = (uintptr_t)argument;
  unsigned char* blocks[kBlocks] = {0};
  for (unsigned round = 0; round < kRounds * kBlocks; round++) {
    const unsigned at = (round * 7 + (unsigned)self) % kBlocks;
    if (blocks[at] != NULL) {
      if (blocks[at][0] != (unsigned char)(self + at)) {
        return "a block has changed";
      }
      free(blocks[at]);
    }
    const size_t size = 1 + (round * 131 + self * 977) % 3000;
    blocks[at] = malloc(size);
    if (blocks[at] == NULL) {
      return "no memory";
    }
    blocks[at][0] = (unsigned char)(self + at);
    void* const other = __atomic_exchange_n(&passed[round % kThreads], malloc(100), __ATOMIC_ACQ_REL);
    free(other); /* mostly another thread's */
  }
  for (unsigned at = 0; at < kBlocks; at++) {
    free(blocks[at]);
  }
  return NULL;
}

static void* nothing(void* argument) {
  void* const block = malloc(1000);
  memset(block, 1, 1000);
  free(block);
  return argument;
}

static void test_functions(void) {
  CHECK(((uintptr_t)malloc(1) & 15) == 0);
  char* text = calloc(10, 10);
  for (int i = 0; i < 100; i++) {
    CHECK(text[i] == 0);
  }
  memset(text, 'x', 100);
  text = realloc(text, 100000);
  CHECK(text[0] == 'x' && text[99] == 'x');
  CHECK(malloc_usable_size(text) >= 100000);
  free(text);
  void* aligned = NULL;
  CHECK(posix_memalign(&aligned, 4096, 100) == 0 && ((uintptr_t)aligned & 4095) == 0);
  free(aligned);
  aligned = aligned_alloc(65536, 65536);
  CHECK(((uintptr_t)aligned & 65535) == 0);
  free(aligned);
  aligned = memalign(256, 10);
  CHECK(((uintptr_t)aligned & 255) == 0);
  free(aligned);
  errno = 0;
  volatile size_t huge = SIZE_MAX;
  CHECK(malloc(huge) == NULL && errno == ENOMEM);
  CHECK(calloc(huge, 2) == NULL);
  CHECK(posix_memalign(&aligned, 3, 10) == EINVAL);
  unsigned char* const large = malloc(50 << 20);
  CHECK(large != NULL);
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t at = 0; at < 50 << 20; at += page) {
    large[at] = 1;
  }
  free(large);
}

int main(int count, char** words) {
  (void)words;
  const int emulated = count > 1;
  test_functions();
  for (int i = 0; i < 50; i++) {
    pthread_t thread;
    void* result = NULL;
    CHECK(pthread_create(&thread, NULL, nothing, &failures) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == &failures);
  }
  pthread_t threads[kThreads];
  for (uintptr_t i = 0; i < kThreads; i++) {
    CHECK(pthread_create(&threads[i], NULL, churn, (void*)i) == 0);
  }
  for (int i = 0; i < 10; i++) {
    const pid_t child = fork();
    if (child == 0) {
      char* const block = malloc(500);
      memset(block, 2, 500);
      free(block);
      if (emulated) _exit(0); /* qemu 7.2 fails in a child that starts a thread if the parent had some */
      pthread_t thread;
      _exit(pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  }
  for (int i = 0; i < kThreads; i++) {
    void* result = NULL;
    CHECK(pthread_join(threads[i], &result) == 0);
    if (result != NULL) {
      fprintf(stderr, "failed: %s\n", (const char*)result);
      failures++;
    }
  }
  if (failures == 0) {
    /* 1 and 50 MiB; one of each short thread; two of each round */
    printf("ok %d\n", 2 + 50 + kThreads * kRounds * kBlocks * 2);
  }
  return failures != 0;
}
