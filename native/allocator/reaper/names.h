// Everything that reaper exports: malloc and its relatives, and the explicit API. Include once,
// after heapwright::alloc::library has been defined.
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

HEAPWRIGHT_EXPORT void* reaper_malloc(std::size_t bytes) { return malloc(bytes); }
HEAPWRIGHT_EXPORT void* reaper_calloc(std::size_t count, std::size_t size) { return calloc(count, size); }
HEAPWRIGHT_EXPORT void* reaper_realloc(void* address, std::size_t bytes) { return realloc(address, bytes); }
HEAPWRIGHT_EXPORT void* reaper_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return aligned_alloc(alignment, bytes);
}
HEAPWRIGHT_EXPORT void reaper_free(void* address) { free(address); }
HEAPWRIGHT_EXPORT void reaper_free_sized(void* address, std::size_t bytes) { free_sized(address, bytes); }
HEAPWRIGHT_EXPORT std::size_t reaper_usable_size(const void* address) { return library.usable(address); }
HEAPWRIGHT_EXPORT int reaper_trim(void) { return library.trim() ? 1 : 0; }
HEAPWRIGHT_EXPORT void reaper_get_statistics(reaper_statistics* result) {
  const heapwright::alloc::Statistics s = library.statistics();
  *result = {s.live_bytes,         s.live_blocks,         s.large_bytes,        s.region.used_bytes,
             s.region.dirty_bytes, s.region.purged_bytes, s.region.region_bytes};
}
}
