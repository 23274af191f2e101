/* Touches memory that it asks the kernel to put into huge pages, or not to.

   Arguments: MiB, and "huge" (MADV_HUGEPAGE) or "small" (MADV_NOHUGEPAGE). Prints the bytes of its
   anonymous memory in huge pages, by its own /proc/self/smaps_rollup; -1 if it cannot be read. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const size_t kHuge = 2u << 20;

static long huge_bytes(void) {
  FILE* const file = fopen("/proc/self/smaps_rollup", "r");
  char line[256];
  long kib = -1;
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (sscanf(line, "AnonHugePages: %ld kB", &kib) == 1) {
      break;
    }
  }
  if (file != NULL) {
    fclose(file);
  }
  return kib < 0 ? -1 : kib * 1024;
}

int main(int argc, char** argv) {
  const size_t size = (size_t)atoi(argc > 1 ? argv[1] : "1") << 20;
  char* memory = mmap(NULL, size + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return 1;
  }
  memory = (char*)(((uintptr_t)memory + kHuge - 1) & ~(uintptr_t)(kHuge - 1));
  madvise(memory, size, argc > 2 && strcmp(argv[2], "huge") == 0 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  for (size_t at = 0; at < size; at += 4096) {
    memory[at] = 1;
  }
  const struct timespec pause = {.tv_nsec = 400000000};
  nanosleep(&pause, NULL);  // several ticks of the meter
  printf("%ld\n", huge_bytes());
  return 0;
}
