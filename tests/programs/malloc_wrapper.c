// Wraps malloc: counts the calls and passes them on to the next malloc.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static void* (*next)(size_t);
static unsigned long calls;
void* malloc(size_t n) {
  if (!next) *(void**)&next = dlsym(RTLD_NEXT, "malloc");
  ++calls;
  return next(n);
}
int main(void) {
  void* p[2000];
  for (int i = 0; i < 2000; ++i) p[i] = malloc(40001 + i % 7);
  for (int i = 0; i < 2000; ++i) free(p[i]);
  printf("%d\n", calls >= 2000);
  return 0;
}
