// Calls the C library's own function from a wrapper that makes exgen ready for threads.
#pragma once

#include <dlfcn.h>

#include <cerrno>

#include "../include/exgen.h"

#define HEAPWRIGHT_WRAPPER __attribute__((visibility("default")))

namespace heapwright::alloc::hidden_threads {

// Returns the C library's own function, or nullptr if it has none.
template <class Function>
Function next(const char* name) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) {
    dlerror();  // the program must not find our failure
  }
  return reinterpret_cast<Function>(found);
}

template <class Function, class... Arguments>
int call_threaded(const char* name, Arguments... arguments) {
  const auto real = next<Function>(name);
  if (real == nullptr) {
    errno = ENOSYS;
    return -1;
  }
  exgen_become_threaded();
  return real(arguments...);
}

}  // namespace heapwright::alloc::hidden_threads
