// Fuzzes reaper, which has a heap for each thread from the beginning; see heaps.h.
#include "heaps.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return heapwright::fuzz::fuzz_heaps<false>(data, size);
}
