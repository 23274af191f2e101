/* Calls exec in a thread that is not the leader, while other threads are in mapping calls; a tracer must not lose it.
 * With an argument it is the new program image, and ends. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void* map(void* unused) {
  for (;;) {
    void* block = mmap(NULL, 1UL << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) abort();
    munmap(block, 1UL << 20);
  }
  return unused;
}

static void* exec(void* path) {
  usleep(20000);
  execl(path, path, "again", (char*)NULL);
  abort();
}

int main(int argc, char** argv) {
  if (argc > 1) return 0;
  pthread_t thread;
  for (int at = 0; at < 3; ++at)
    if (pthread_create(&thread, NULL, map, NULL) != 0) return 1;
  if (pthread_create(&thread, NULL, exec, argv[0]) != 0) return 1;
  for (;;) pause();
}
