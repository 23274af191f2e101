// Exports every name of malloc on glibc: those of C, of C23 and glibc's own. C++'s operators are in
// operators.h and operators_hardened.h. Names with the same body are aliases, so that none costs a
// jump through the PLT.
//
// Include once, after `heapwright::alloc::library` has been defined.
#pragma once

#include <cstdio>

#include "../platform/c_library.h"
#include "allocate.h"
#include "cxx.h"
#include "information.h"

#define HEAPWRIGHT_EXPORT [[gnu::visibility("default")]]
#define HEAPWRIGHT_ALIAS(body) [[gnu::visibility("default"), gnu::alias(body)]]

using heapwright::alloc::library;
using heapwright::alloc::Origin;
namespace entry = heapwright::alloc::entry;

// For tools that read this heap from another process: core/heap_layout.h. It is not const, so that
// it lies in writable data, where they search. `protected`: a program and a library may both have
// one. `retain`: a linker that removes unused data keeps it.
extern "C" {
extern heapwright::alloc::HeapLayout heapwright_heap_layout;
[[gnu::visibility("protected"), gnu::used,
  gnu::retain]] constinit heapwright::alloc::HeapLayout heapwright_heap_layout =
    library.layout(&heapwright_heap_layout);
}

// The attributes (nonnull, malloc, alloc_size) and exception specifications are those of glibc's
// headers.

extern "C" {
HEAPWRIGHT_EXPORT void* malloc(std::size_t bytes) HEAPWRIGHT_NOTHROW {
  return entry::allocate(library, bytes);
}
HEAPWRIGHT_EXPORT void free(void* address) HEAPWRIGHT_NOTHROW { library.free(address); }
HEAPWRIGHT_EXPORT void free_sized(void* address, std::size_t bytes) HEAPWRIGHT_NOTHROW {
  library.free(address, {.origin = Origin::kMalloc, .bytes = bytes});
}
HEAPWRIGHT_EXPORT void free_aligned_sized(void* address, std::size_t /*alignment*/,
                                          std::size_t bytes) HEAPWRIGHT_NOTHROW {
  library.free(address, {.origin = Origin::kMalloc, .bytes = bytes});
}
HEAPWRIGHT_EXPORT void* calloc(std::size_t count, std::size_t size) HEAPWRIGHT_NOTHROW {
  return entry::allocate_zeroed(library, count, size);
}
HEAPWRIGHT_EXPORT void* realloc(void* address, std::size_t bytes) HEAPWRIGHT_NOTHROW {
  return entry::reallocate(library, address, bytes);
}
HEAPWRIGHT_EXPORT void* reallocarray(void* address, std::size_t count, std::size_t size) HEAPWRIGHT_NOTHROW {
  return entry::reallocate_array(library, address, count, size);
}
HEAPWRIGHT_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t bytes) HEAPWRIGHT_NOTHROW {
  return entry::aligned_alloc(library, alignment, bytes);
}
HEAPWRIGHT_EXPORT void* memalign(std::size_t alignment, std::size_t bytes) HEAPWRIGHT_NOTHROW {
  return entry::memalign(library, alignment, bytes);
}
HEAPWRIGHT_EXPORT int posix_memalign(void** result, std::size_t alignment,
                                     std::size_t bytes) HEAPWRIGHT_NOTHROW {
  return entry::posix_memalign(library, result, alignment, bytes);
}
HEAPWRIGHT_EXPORT void* valloc(std::size_t bytes) HEAPWRIGHT_NOTHROW { return entry::valloc(library, bytes); }
HEAPWRIGHT_EXPORT void* pvalloc(std::size_t bytes) HEAPWRIGHT_NOTHROW {
  return entry::pvalloc(library, bytes);
}
HEAPWRIGHT_EXPORT std::size_t malloc_usable_size(void* address) HEAPWRIGHT_NOTHROW {
  return library.usable(address);
}
HEAPWRIGHT_EXPORT int malloc_trim(std::size_t /*pad*/) HEAPWRIGHT_NOTHROW { return library.trim() ? 1 : 0; }
HEAPWRIGHT_EXPORT struct mallinfo2 mallinfo2() HEAPWRIGHT_NOTHROW {
  return entry::information2(library.statistics());
}
HEAPWRIGHT_EXPORT struct mallinfo mallinfo() HEAPWRIGHT_NOTHROW {
  return entry::information(library.statistics());
}
HEAPWRIGHT_EXPORT void malloc_stats() HEAPWRIGHT_NOTHROW {
  entry::print_statistics(library.kName, library.statistics());
}
HEAPWRIGHT_EXPORT int malloc_info(int options, FILE* file) HEAPWRIGHT_NOTHROW {
  return entry::write_xml(options, file, library.kName, library.statistics());
}
HEAPWRIGHT_EXPORT int mallopt(int what, int value) HEAPWRIGHT_NOTHROW {
  return library.set_option(what, value);
}

HEAPWRIGHT_ALIAS("free") void cfree(void*) HEAPWRIGHT_NOTHROW;
HEAPWRIGHT_ALIAS("malloc") void* __libc_malloc(std::size_t) HEAPWRIGHT_NOTHROW;
HEAPWRIGHT_ALIAS("free") void __libc_free(void*) HEAPWRIGHT_NOTHROW;
HEAPWRIGHT_ALIAS("free") void __libc_cfree(void*) HEAPWRIGHT_NOTHROW;
HEAPWRIGHT_ALIAS("calloc") void* __libc_calloc(std::size_t, std::size_t) HEAPWRIGHT_NOTHROW;
HEAPWRIGHT_ALIAS("realloc") void* __libc_realloc(void*, std::size_t) HEAPWRIGHT_NOTHROW;
HEAPWRIGHT_ALIAS("memalign") void* __libc_memalign(std::size_t, std::size_t) HEAPWRIGHT_NOTHROW;
HEAPWRIGHT_ALIAS("valloc") void* __libc_valloc(std::size_t) HEAPWRIGHT_NOTHROW;
HEAPWRIGHT_ALIAS("pvalloc") void* __libc_pvalloc(std::size_t) HEAPWRIGHT_NOTHROW;
HEAPWRIGHT_ALIAS("posix_memalign") int __posix_memalign(void**, std::size_t, std::size_t) HEAPWRIGHT_NOTHROW;
}
