// Holds the addresses of C++'s basic operators as the dynamic linker binds them: the program's, if
// it replaces them, or ours.
//
// A program may replace only `operator new(std::size_t)` and `operator delete(void*)`. The standard
// says that the other forms then call these.
#pragma once

#include <cstddef>
#include <new>

namespace heapwright::alloc::entry {

struct BasicOperators {
  void* (*new_one)(std::size_t);
  void* (*new_array)(std::size_t);
  void* (*new_aligned)(std::size_t, std::align_val_t);
  void* (*new_array_aligned)(std::size_t, std::align_val_t);
  void (*delete_one)(void*) noexcept;
  void (*delete_array)(void*) noexcept;
  void (*delete_aligned)(void*, std::align_val_t) noexcept;
  void (*delete_array_aligned)(void*, std::align_val_t) noexcept;
};
[[gnu::visibility("hidden")]] extern constinit const BasicOperators basic_operators;

}  // namespace heapwright::alloc::entry
