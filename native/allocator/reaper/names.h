// Exports all names of reaper: malloc and its relatives, and the explicit API. Include once, after
// heapwright::alloc::library has been defined.
#pragma once

#include "../entry/symbols.h"
#include "../include/reaper.h"

namespace {

[[gnu::constructor(101)]] void start(int /*count*/, char** /*arguments*/, char** environment) {
  char** const variables = heapwright::alloc::platform::environment(environment);
  library.start("REAPER_OPTIONS",
                heapwright::alloc::platform::environment_value(variables, "REAPER_OPTIONS"));
}

[[gnu::destructor(101)]] void end() {
  if (library.prints_statistics()) {
    entry::print_statistics(library.kName, library.statistics());
  }
}

}  // namespace

extern "C" {

// Aliases: if the program opened this library at run time, its `malloc` is another allocator's.
HEAPWRIGHT_ALIAS("malloc") void* reaper_malloc(std::size_t);
HEAPWRIGHT_ALIAS("calloc") void* reaper_calloc(std::size_t, std::size_t);
HEAPWRIGHT_ALIAS("realloc") void* reaper_realloc(void*, std::size_t);
HEAPWRIGHT_ALIAS("aligned_alloc") void* reaper_aligned_alloc(std::size_t, std::size_t);
HEAPWRIGHT_ALIAS("free") void reaper_free(void*);
HEAPWRIGHT_ALIAS("free_sized") void reaper_free_sized(void*, std::size_t);
HEAPWRIGHT_EXPORT std::size_t reaper_usable_size(const void* address) { return library.usable(address); }
HEAPWRIGHT_EXPORT int reaper_trim(void) { return library.trim() ? 1 : 0; }
HEAPWRIGHT_EXPORT void reaper_get_statistics(reaper_statistics* result) {
  const heapwright::alloc::Statistics s = library.statistics();
  *result = {s.live_bytes,   s.live_blocks,         s.large_bytes,        s.region.used_bytes,
             s.free_bytes(), s.region.purged_bytes, s.region.region_bytes};
}
}
