/* Allocates and frees large blocks in the same memory, again and again, and fills a part of each.
 * Usage: record_large BYTES BLOCKS PERCENT [keep]: the block before the last is filled, and the last stays allocated */
#include <stdlib.h>
#include <string.h>

int main(int words, char** argv) {
  if (words < 4) return 2;
  const size_t bytes = strtoul(argv[1], NULL, 10);
  const long blocks = atol(argv[2]);
  const size_t filled = bytes / 100 * strtoul(argv[3], NULL, 10);
  void* keeps = NULL; /* lies behind the first block, so that glibc does not give its memory back */
  for (long at = 0; at < blocks; ++at) {
    char* volatile block = malloc(bytes);
    memset(block, 1, at == 0 || (words > 4 && at + 2 == blocks) ? bytes : filled);
    if (keeps == NULL) keeps = malloc(16);
    if (words == 4 || at + 1 < blocks) free(block);
  }
  free(keeps);
  return 0;
}
