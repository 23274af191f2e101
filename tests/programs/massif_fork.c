/* fork: the child maps much more than the parent; Massif (which does not follow children) counts the parent
 * only. */
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int map(unsigned long size) {
  char* block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return 1;
  block[0] = 1;
  return munmap(block, size);
}

int main(void) {
  for (int round = 0; round < 3; ++round) {
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) _exit(map(200UL << 20));
    if (map(20UL << 20) != 0) return 1;
    int status = 0;
    if (waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return 0;
}
