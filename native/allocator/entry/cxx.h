// Defines the bodies of C++'s operators new, with the handling of memory that runs out.
//
// The library is not linked to a C++ runtime: otherwise every C program would load one. It finds
// the program's own runtime by weak symbols. The dynamic linker binds these when the program
// starts. A runtime that is loaded later, as by a Python extension in C++, is looked up when it is
// needed.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <initializer_list>
#include <new>

#include "../core/message.h"
#include "allocate.h"

namespace heapwright::alloc::entry {

// Functions of the C++ runtime, if there is one: std::get_new_handler and libstdc++'s
// std::__throw_bad_alloc.
[[gnu::weak]] std::new_handler runtime_new_handler() asm("_ZSt15get_new_handlerv");
[[noreturn, gnu::weak]] void runtime_throw_bad_alloc() asm("_ZSt17__throw_bad_allocv");

// Returns a function of the C++ runtime, or nullptr. dlsym does not see a runtime that came by
// dlopen with RTLD_LOCAL, so the runtimes are also looked up by name. dlopen itself is looked up
// because the linker warns of it in a static program. That has none, and its runtime is bound.
//
// scope  RTLD_DEFAULT, or RTLD_NEXT for a function that this library defines too
template <class Function>
HEAPWRIGHT_COLD Function* find_in_runtime(const char* name, void* scope) {
  void* symbol = dlsym(scope, name);
  const auto open = reinterpret_cast<decltype(&dlopen)>(dlsym(RTLD_DEFAULT, "dlopen"));
  for (const char* const library : {"libstdc++.so.6", "libc++.so.1"}) {
    if (symbol == nullptr && open != nullptr) {
      void* const handle = open(library, RTLD_LAZY | RTLD_NOLOAD);
      symbol = handle == nullptr ? nullptr : dlsym(handle, name);
    }
  }
  dlerror();  // the program must not find our failures
  return reinterpret_cast<Function*>(symbol);
}

// Returns the runtime's own nothrow operator, or nullptr. It calls the throwing operator, which is
// ours or the program's, and catches its exceptions. This library cannot catch any.
inline constinit std::nothrow_t kNothrow{};
template <class... Tag>
auto* find_nothrow(const char* name) {
  return find_in_runtime<void*(std::size_t, Tag..., const std::nothrow_t&)>(name, RTLD_NEXT);
}

// For nothrow new if there is a new-handler: that may throw.
template <class... Tag>
void* runtime_new_nothrow(const char* name, std::size_t bytes, Tag... tag) {
  auto* const function = find_nothrow<Tag...>(name);
  return function == nullptr ? nullptr : function(bytes, tag..., kNothrow);
}

// Returns the program's new-handler, or nullptr.
inline std::new_handler find_new_handler() {
  auto* const get = &runtime_new_handler != nullptr
                        ? &runtime_new_handler
                        : find_in_runtime<std::new_handler()>("_ZSt15get_new_handlerv", RTLD_DEFAULT);
  return get == nullptr ? nullptr : get();
}

template <class Library>
[[noreturn]] void bad_alloc(const Library& /*library*/) {
  if (auto* const throw_it = &runtime_throw_bad_alloc != nullptr
                                 ? &runtime_throw_bad_alloc
                                 : find_in_runtime<void()>("_ZSt17__throw_bad_allocv", RTLD_DEFAULT);
      throw_it != nullptr) {
    throw_it();
  }
  Message message;
  message << Library::kName << ": operator new has no memory, and finds no C++ runtime to throw bad_alloc\n";
  message.write();
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
      if (find_new_handler() == nullptr) {
        return nullptr;
      }
      return alignment == 0 ? runtime_new_nothrow("_ZnwmRKSt9nothrow_t", bytes)
                            : runtime_new_nothrow("_ZnwmSt11align_val_tRKSt9nothrow_t", bytes,
                                                  static_cast<std::align_val_t>(alignment));
    }
    const std::new_handler handler = find_new_handler();
    if (handler == nullptr) {
      bad_alloc(library);
    }
    handler();
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
