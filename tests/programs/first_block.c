/* first_block BYTES: allocates two blocks of BYTES, then a small and a large one, and prints the number of mappings
 * without access, which are the guards of a hardened allocator. It checks that freeing one of the first two leaves
 * the other intact. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const size_t size = strtoul(argv[1], NULL, 10);
  char* const one = malloc(size);
  char* const two = malloc(size);
  if (one == NULL || two == NULL) return 1;
  memset(one, 1, size);
  memset(two, 2, size);
  void* volatile block = malloc(100);
  block = malloc(2000000);
  FILE* const maps = fopen("/proc/self/maps", "r");
  char line[512];
  int guards = 0;
  while (fgets(line, sizeof line, maps) != NULL) guards += strstr(line, " ---p 00000000 00:00 0") != NULL;
  free(two);
  for (size_t i = 0; i < size; ++i) {
    if (one[i] != 1) return 3;
  }
  printf("%d\n", guards);
  return block == NULL;
}
