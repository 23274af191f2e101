// A library that brings the C++ runtime into a C program. It calls operator new, and then reuses
// small free blocks.
#include <cstddef>
#include <cstdlib>

extern "C" void* library_makes() {
  const volatile std::size_t base = 40000;
  char* volatile block = new char[base + 1];
  delete[] block;
  constexpr std::size_t kSmall = 256;
  void* small[kSmall];
  for (std::size_t i = 0; i < kSmall; ++i) {
    small[i] = std::malloc(i + 1);
  }
  for (void* each : small) {
    std::free(each);
  }
  return std::malloc(base + 2);
}
