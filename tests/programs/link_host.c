/* Loads a plug-in and calls it, and allocates meanwhile: link_host PLUGIN. It refers to no function that starts
 * threads. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char** argv) {
  enum { kBlocks = 20000 };
  static char* blocks[kBlocks];
  if (argc < 2) {
    return 2;
  }
  void* const plugin = dlopen(argv[1], RTLD_NOW);
  if (plugin == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  void (*begin)(void) = (void (*)(void))dlsym(plugin, "begin");
  long (*end)(void) = (long (*)(void))dlsym(plugin, "end");
  for (int i = 0; i < kBlocks; ++i) {
    if (i == kBlocks / 2) {
      begin();
    }
    blocks[i] = malloc((size_t)(i % 200) + 1);
    memset(blocks[i], i & 0x7f, (size_t)(i % 200) + 1);
  }
  const long sum = end();
  for (int i = 0; i < kBlocks; ++i) {
    for (int k = 0; k <= i % 200; ++k) {
      if (blocks[i][k] != (i & 0x7f)) {
        fprintf(stderr, "block %d is damaged\n", i);
        return 1;
      }
    }
    free(blocks[i]);
  }
  printf("%ld\n", sum);
  return 0;
}
