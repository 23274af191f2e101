/* dlopen and dlclose: the loader reserves the whole library, then maps its segments over it. */
#include <dlfcn.h>
#include <stddef.h>

int main(void) {
  for (int round = 0; round < 3; ++round) {
    void* library = dlopen("libm.so.6", RTLD_NOW);
    if (!library || !dlsym(library, "cos")) return 1;
    if (dlclose(library) != 0) return 1;
  }
  return 0;
}
