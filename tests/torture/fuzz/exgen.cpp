// Fuzzes exgen, which has one heap until there is a second thread; see heaps.h.
#include "heaps.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return heapwright::fuzz::fuzz_heaps<true>(data, size);
}
