// Exports all names of exgen: malloc and its relatives, the explicit API, and the functions that
// start a thread.
//
// The latter are wrapped so that the library learns of the second thread before it exists. Include
// once, after heapwright::alloc::library has been defined.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include "../entry/symbols.h"
#include "../include/exgen.h"
#include "../platform/c_library.h"

namespace {

[[gnu::constructor(101)]] void start(int /*count*/, char** /*arguments*/, char** environment) {
  char** const variables = heapwright::alloc::platform::environment(environment);
  library.start("EXGEN_OPTIONS", heapwright::alloc::platform::environment_value(variables, "EXGEN_OPTIONS"));
}

[[gnu::destructor(101)]] void end() {
  if (library.prints_statistics()) {
    entry::print_statistics(library.kName, library.statistics());
  }
}

// Returns the C library's own function. A static program has no next library: there it is `other`,
// a second name in the C library's archive. platform/thread_functions.cpp brings that name into the
// program.
template <class Function>
Function next(const char* name, Function other) {
  if (const auto found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name)); found != nullptr) {
    return found;
  }
  dlerror();  // the program must not find our failure
  if (other == nullptr) {
    heapwright::alloc::Message message;
    message << library.kName << ": no " << name << ": link a static program with "
            << "-Wl,-u,heapwright_thread_functions\n";
    message.write();
    heapwright::alloc::platform::abort_process();
  }
  return other;
}

}  // namespace

extern "C" {

HEAPWRIGHT_EXPORT int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                     void* (*body)(void*), void* argument) HEAPWRIGHT_NOTHROW {
  // NOLINTNEXTLINE(bugprone-dynamic-static-initializers): looked up at the first call
  static const auto real = next<decltype(&pthread_create)>("pthread_create", __pthread_create);
  library.become_threaded();
  return real(thread, attributes, body, argument);
}

HEAPWRIGHT_EXPORT int thrd_create(thrd_t* thread, thrd_start_t body, void* argument) {
  // NOLINTNEXTLINE(bugprone-dynamic-static-initializers): looked up at the first call
  static const auto real =
      next<decltype(&thrd_create)>("thrd_create", heapwright::alloc::platform::second_thrd_create());
  library.become_threaded();
  return real(thread, body, argument);
}

// Aliases: if the program opened this library at run time, its `malloc` is another allocator's.
HEAPWRIGHT_ALIAS("malloc") void* exgen_malloc(std::size_t);
HEAPWRIGHT_ALIAS("calloc") void* exgen_calloc(std::size_t, std::size_t);
HEAPWRIGHT_ALIAS("realloc") void* exgen_realloc(void*, std::size_t);
HEAPWRIGHT_ALIAS("aligned_alloc") void* exgen_aligned_alloc(std::size_t, std::size_t);
HEAPWRIGHT_ALIAS("free") void exgen_free(void*);
HEAPWRIGHT_ALIAS("free_sized") void exgen_free_sized(void*, std::size_t);
HEAPWRIGHT_EXPORT std::size_t exgen_usable_size(const void* address) { return library.usable(address); }
HEAPWRIGHT_EXPORT int exgen_trim(void) { return library.trim() ? 1 : 0; }
HEAPWRIGHT_EXPORT void exgen_become_threaded(void) { library.become_threaded(); }
HEAPWRIGHT_EXPORT void exgen_get_statistics(exgen_statistics* result) {
  const heapwright::alloc::Statistics s = library.statistics();
  *result = {s.live_bytes,   s.live_blocks,         s.large_bytes,        s.region.used_bytes,
             s.free_bytes(), s.region.purged_bytes, s.region.region_bytes};
}
}
