// What C++'s operators new do when memory is out. The library is not linked to a C++ runtime, or every C
// program would have to load one; it asks the runtime that the program brings, by weak names.
#pragma once

#include <cstddef>
#include <new>

#include "allocate.h"

namespace heapwright::alloc::entry {

// The C++ runtime's own, if there is one: std::get_new_handler and libstdc++'s std::__throw_bad_alloc.
[[gnu::weak]] std::new_handler runtime_new_handler() asm("_ZSt15get_new_handlerv");
[[noreturn, gnu::weak]] void runtime_throw_bad_alloc() asm("_ZSt17__throw_bad_allocv");

// Calls the new-handler; false: there is none.
inline bool called_handler() {
  const std::new_handler handler = &runtime_new_handler == nullptr ? nullptr : runtime_new_handler();
  if (handler == nullptr) {
    return false;
  }
  handler();
  return true;
}

[[noreturn]] inline void bad_alloc() {
  if (&runtime_throw_bad_alloc != nullptr) {
    runtime_throw_bad_alloc();
  }
  platform::abort_process();
}

// Until there is memory, the handler gives up by throwing, or there is none.
template <class Library>
HEAPWRIGHT_COLD void* new_slow(Library& library, std::size_t bytes, std::size_t alignment, bool nothrow) {
  for (;;) {
    void* const block =
        alignment == 0 ? library.allocate_slow(bytes) : library.allocate_aligned(bytes, alignment);
    if (block != nullptr) {
      return block;
    }
    if (!called_handler()) {
      if (nothrow) {
        return nullptr;
      }
      bad_alloc();
    }
  }
}

template <class Library>
HEAPWRIGHT_INLINE void* operator_new(Library& library, std::size_t bytes) {
  void* const block = library.allocate(bytes);
  return block != nullptr ? block : new_slow(library, bytes, 0, false);
}

template <class Library>
HEAPWRIGHT_INLINE void* operator_new_nothrow(Library& library, std::size_t bytes) {
  void* const block = library.allocate(bytes);
  return block != nullptr ? block : new_slow(library, bytes, 0, true);
}

}  // namespace heapwright::alloc::entry
