/* Calls malloc, free, operator new and operator delete, each at last on its hot path: tests/platforms counts the
   instructions. Prints the address of each function, and that of main, before the calls. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef void* (*take_function)(size_t);
typedef void (*give_function)(void*);

int main(void) {
  take_function take[2];
  give_function give[2];
  *(void**)&take[0] = dlsym(RTLD_DEFAULT, "malloc");
  *(void**)&give[0] = dlsym(RTLD_DEFAULT, "free");
  *(void**)&take[1] = dlsym(RTLD_DEFAULT, "_Znwm");
  *(void**)&give[1] = dlsym(RTLD_DEFAULT, "_ZdlPv");
  if (take[0] == NULL || give[0] == NULL || take[1] == NULL || give[1] == NULL) return 1;
  printf("main %p\nmalloc %p\nfree %p\noperator new %p\noperator delete %p\n", (void*)main, *(void**)&take[0],
         *(void**)&give[0], *(void**)&take[1], *(void**)&give[1]);
  fflush(stdout);
  /* The first calls of a size class are slow ones, and so is a call when a list is due for its check. */
  for (int i = 0; i < 20; i++) {
    void* block = take[i % 2](64);
    give[i % 2](block);
  }
  _exit(0); /* exit would call malloc and free itself */
}
