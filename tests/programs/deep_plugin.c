// A plug-in that is loaded with RTLD_DEEPBIND, as PHP loads its modules: its malloc is the C library's, whatever library is
// preloaded. `deep_plugin FILE` loads FILE and frees a block of the plug-in.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PLUGIN
char* give(void) { return strcpy(malloc(100), "given"); }
#else
int main(int count, char** words) {
  void* const plugin = count > 1 ? dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND) : NULL;
  char* (*give)(void) = NULL;
  if (plugin != NULL) {
    *(void**)&give = dlsym(plugin, "give");
  }
  if (give == NULL) {
    return 1;
  }
  char* const text = give();
  puts(text);
  free(text);
  return 0;
}
#endif
