// Finds out whether the program replaces our basic operators, and calls the program's.
//
// Include it in the source that defines our operators.
#pragma once

#include "basic_operators.h"
#include "cxx.h"

// For our definition of an operator. It is weak: a program that the archive is linked into may
// define the operator, too.
#define HEAPWRIGHT_OPERATOR [[gnu::visibility("default"), gnu::weak]]

// Our own operators, even if the program replaces them.
extern "C" {
#define HEAPWRIGHT_OWN(body) [[gnu::visibility("hidden"), gnu::alias(body)]]
HEAPWRIGHT_OWN("_Znwm") void* heapwright_new(std::size_t);
HEAPWRIGHT_OWN("_Znam") void* heapwright_new_array(std::size_t);
HEAPWRIGHT_OWN("_ZnwmSt11align_val_t") void* heapwright_new_aligned(std::size_t, std::align_val_t);
HEAPWRIGHT_OWN("_ZnamSt11align_val_t") void* heapwright_new_array_aligned(std::size_t, std::align_val_t);
HEAPWRIGHT_OWN("_ZdlPv") void heapwright_delete(void*) noexcept;
HEAPWRIGHT_OWN("_ZdaPv") void heapwright_delete_array(void*) noexcept;
HEAPWRIGHT_OWN("_ZdlPvSt11align_val_t") void heapwright_delete_aligned(void*, std::align_val_t) noexcept;
HEAPWRIGHT_OWN("_ZdaPvSt11align_val_t")
void heapwright_delete_array_aligned(void*, std::align_val_t) noexcept;
#undef HEAPWRIGHT_OWN
}

namespace heapwright::alloc::entry {

// Whether a call of the operator ends in ours: operator new[] calls operator new.
inline bool new_is_ours() { return basic_operators.new_one == &heapwright_new; }
inline bool new_aligned_is_ours() { return basic_operators.new_aligned == &heapwright_new_aligned; }
inline bool new_array_is_ours() {
  return basic_operators.new_array == &heapwright_new_array && new_is_ours();
}
inline bool new_array_aligned_is_ours() {
  return basic_operators.new_array_aligned == &heapwright_new_array_aligned && new_aligned_is_ours();
}

// Calls a replaced operator new, and returns nullptr if it throws. Only the runtime's nothrow
// operator can do that: this library cannot catch exceptions.
//
// name  of the nothrow operator
template <class... Tag>
HEAPWRIGHT_COLD void* call_replaced(const char* name, void* (*replaced)(std::size_t, Tag...),
                                    std::size_t bytes, Tag... tag) {
  auto* const catches = find_nothrow<Tag...>(name);
  return catches != nullptr ? catches(bytes, tag..., kNothrow) : replaced(bytes, tag...);
}

}  // namespace heapwright::alloc::entry
