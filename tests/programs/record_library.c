/* A library that allocates when it is loaded and when it is called, and frees when it is unloaded. */
#include <stdlib.h>

static volatile size_t base = 40000;
static void* kept;

void* library_makes(void) { return malloc(base + 2); }

__attribute__((constructor)) static void loaded(void) { kept = malloc(base + 1); }
__attribute__((destructor)) static void goes(void) { free(kept); }
