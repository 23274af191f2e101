// C++'s operators new, and their behaviour when memory runs out.
//
// The library is not linked to a C++ runtime: otherwise every C program would load one. It finds
// the program's own runtime by weak symbols.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <new>

#include "allocate.h"

namespace heapwright::alloc::entry {

// Functions of the C++ runtime, if there is one: std::get_new_handler and libstdc++'s
// std::__throw_bad_alloc.
[[gnu::weak]] std::new_handler runtime_new_handler() asm("_ZSt15get_new_handlerv");
[[noreturn, gnu::weak]] void runtime_throw_bad_alloc() asm("_ZSt17__throw_bad_allocv");

// A new-handler may throw, and nothrow new must then return nullptr. This library cannot catch
// exceptions. The runtime's own nothrow operator can: it calls the throwing operator, which is
// ours.
template <class... Tag>
void* runtime_new_nothrow(const char* name, std::size_t bytes, Tag... tag) {
  using Function = void* (*)(std::size_t, Tag..., const std::nothrow_t&);
  static constinit std::nothrow_t nothrow{};
  const auto function = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  return function == nullptr ? nullptr : function(bytes, tag..., nothrow);
}

// Calls the new-handler. Returns false if there is none.
inline bool call_new_handler() {
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

// Tries until there is memory, the new-handler throws, or there is no new-handler.
template <class Library>
HEAPWRIGHT_COLD void* new_slow(Library& library, std::size_t bytes, std::size_t alignment, bool nothrow) {
  for (;;) {
    void* const block =
        alignment == 0 ? library.allocate_slow(bytes) : library.allocate_aligned(bytes, alignment);
    if (block != nullptr) {
      return block;
    }
    if (nothrow) {
      if (&runtime_new_handler == nullptr || runtime_new_handler() == nullptr) {
        return nullptr;
      }
      return alignment == 0 ? runtime_new_nothrow("_ZnwmRKSt9nothrow_t", bytes)
                            : runtime_new_nothrow("_ZnwmSt11align_val_tRKSt9nothrow_t", bytes,
                                                  static_cast<std::align_val_t>(alignment));
    }
    if (!call_new_handler()) {
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
