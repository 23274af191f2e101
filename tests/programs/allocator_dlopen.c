/* Tests a malloc in a program that opens libraries while it runs: allocator_dlopen NAME ARGUMENTS.
 *
 *   extension PATH       calls request_too_much() of a C++ library (allocator_extension.cpp) and prints its answer
 *   explicit PATH NAME   opens an allocator of ours and calls its functions NAME_malloc, NAME_realloc and so on. Prints
 *                        how many of the blocks are the allocator's own
 *   keys PATH            uses up pthread's keys, opens an allocator of ours, and allocates from it in a thread. Prints
 *                        what then is the value of key 0, which is set to 7 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void* (*Malloc)(size_t);

static void* open_library(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  return library;
}

static void* find(void* library, const char* prefix, const char* name) {
  char symbol[64];
  snprintf(symbol, sizeof symbol, "%s%s", prefix, name);
  void* found = dlsym(library, symbol);
  if (found == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    exit(3);
  }
  return found;
}

static int explicit_functions(const char* path, const char* name) {
  void* library = open_library(path);
  size_t (*usable)(const void*) = (size_t (*)(const void*))find(library, name, "_usable_size");
  void (*release)(void*) = (void (*)(void*))find(library, name, "_free");
  void (*release_sized)(void*, size_t) = (void (*)(void*, size_t))find(library, name, "_free_sized");
  void* (*resize)(void*, size_t) = (void* (*)(void*, size_t))find(library, name, "_realloc");
  void* blocks[4] = {
      ((Malloc)find(library, name, "_malloc"))(100000),
      ((void* (*)(size_t, size_t))find(library, name, "_calloc"))(10, 100),
      resize(NULL, 500),
      ((void* (*)(size_t, size_t))find(library, name, "_aligned_alloc"))(64, 128),
  };
  static const size_t kSizes[4] = {100000, 1000, 500, 128};
  int own = 0;
  for (int i = 0; i < 4; i++) own += usable(blocks[i]) >= kSizes[i];
  for (int i = 0; i < 3; i++) release(blocks[i]);
  release_sized(blocks[3], kSizes[3]);
  printf("%d\n", own);
  return 0;
}

static pthread_key_t first_key;

static void* allocate(void* function) {
  pthread_setspecific(first_key, (void*)7);
  if (((Malloc)function)(100) == NULL) return (void*)-1;
  return pthread_getspecific(first_key);
}

static int keys(const char* path) {
  pthread_key_t other;
  pthread_t thread;
  void* value = NULL;
  if (pthread_key_create(&first_key, NULL) != 0 || first_key != 0) return 4;
  while (pthread_key_create(&other, NULL) == 0) {
  }
  void* function = find(open_library(path), "", "malloc");
  if (pthread_create(&thread, NULL, allocate, function) != 0 || pthread_join(thread, &value) != 0) return 5;
  printf("%jd\n", (intmax_t)(intptr_t)value);
  return 0;
}

int main(int count, char** words) {
  if (count == 3 && strcmp(words[1], "extension") == 0) {
    const char* (*request)(void) =
        (const char* (*)(void))find(open_library(words[2]), "", "request_too_much");
    puts(request());
    return 0;
  }
  if (count == 4 && strcmp(words[1], "explicit") == 0) return explicit_functions(words[2], words[3]);
  if (count == 3 && strcmp(words[1], "keys") == 0) return keys(words[2]);
  return 2;
}
