// Exports C++'s operators of a hardened build. A block records which operator allocated it. The
// delete must match it, and the size given to a sized delete must be right. If the program has
// replaced a basic operator (basic_operators.h), the forms that the standard derives from it call
// the program's. Include after symbols.h.
#pragma once

#include "replaced_operators.h"
#include "symbols.h"

namespace heapwright::alloc::entry {

template <class Library>
void* with_origin(Library& library, void* block, Origin origin) {
  if (block != nullptr) {
    library.set_origin(block, origin);
  }
  return block;
}

// Allocates for a form of operator new. nullptr: nothrow, and there is no memory.
template <class Library>
void* hardened_new(Library& library, std::size_t bytes, Origin origin, bool nothrow) {
  return with_origin(library, nothrow ? operator_new_nothrow(library, bytes) : operator_new(library, bytes),
                     origin);
}
template <class Library>
void* hardened_new(Library& library, std::size_t bytes, std::align_val_t alignment, Origin origin,
                   bool nothrow) {
  return with_origin(library, new_slow(library, bytes, static_cast<std::size_t>(alignment), nothrow), origin);
}

// Frees for a form of operator delete, or calls the program's basic operator of that form.
template <class Library, class... Tag>
void hardened_delete(Library& library, void (*own)(void*, Tag...) noexcept,
                     void (*basic)(void*, Tag...) noexcept, void* address, FreedAs freed_as, Tag... tag) {
  if (basic != own) [[unlikely]] {
    basic(address, tag...);
  } else {
    library.free(address, freed_as);
  }
}

}  // namespace heapwright::alloc::entry

using entry::basic_operators;
using heapwright::alloc::FreedAs;

HEAPWRIGHT_OPERATOR void* operator new(std::size_t bytes) {
  return entry::hardened_new(library, bytes, Origin::kNew, false);
}
HEAPWRIGHT_OPERATOR void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return entry::hardened_new(library, bytes, alignment, Origin::kNew, false);
}
HEAPWRIGHT_OPERATOR void* operator new[](std::size_t bytes) {
  return entry::new_is_ours() ? entry::hardened_new(library, bytes, Origin::kNewArray, false)
                              : basic_operators.new_one(bytes);
}
HEAPWRIGHT_OPERATOR void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return entry::new_aligned_is_ours()
             ? entry::hardened_new(library, bytes, alignment, Origin::kNewArray, false)
             : basic_operators.new_aligned(bytes, alignment);
}

// Nothrow.
HEAPWRIGHT_OPERATOR void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return entry::new_is_ours() ? entry::hardened_new(library, bytes, Origin::kNew, true)
                              : entry::call_replaced("_ZnwmRKSt9nothrow_t", basic_operators.new_one, bytes);
}
HEAPWRIGHT_OPERATOR void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return entry::new_array_is_ours()
             ? entry::hardened_new(library, bytes, Origin::kNewArray, true)
             : entry::call_replaced("_ZnamRKSt9nothrow_t", basic_operators.new_array, bytes);
}
HEAPWRIGHT_OPERATOR void* operator new(std::size_t bytes, std::align_val_t alignment,
                                       const std::nothrow_t& /*tag*/) noexcept {
  return entry::new_aligned_is_ours() ? entry::hardened_new(library, bytes, alignment, Origin::kNew, true)
                                      : entry::call_replaced("_ZnwmSt11align_val_tRKSt9nothrow_t",
                                                             basic_operators.new_aligned, bytes, alignment);
}
HEAPWRIGHT_OPERATOR void* operator new[](std::size_t bytes, std::align_val_t alignment,
                                         const std::nothrow_t& /*tag*/) noexcept {
  return entry::new_array_aligned_is_ours()
             ? entry::hardened_new(library, bytes, alignment, Origin::kNewArray, true)
             : entry::call_replaced("_ZnamSt11align_val_tRKSt9nothrow_t", basic_operators.new_array_aligned,
                                    bytes, alignment);
}

// The basic operators delete, and delete[] if the program has not replaced the former.
HEAPWRIGHT_OPERATOR void operator delete(void* address) noexcept {
  library.free(address, {.origin = Origin::kNew});
}
HEAPWRIGHT_OPERATOR void operator delete(void* address, std::align_val_t /*tag*/) noexcept {
  library.free(address, {.origin = Origin::kNew});
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address) noexcept {
  entry::hardened_delete(library, heapwright_delete, basic_operators.delete_one, address,
                         FreedAs{.origin = Origin::kNewArray});
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address, std::align_val_t alignment) noexcept {
  entry::hardened_delete(library, heapwright_delete_aligned, basic_operators.delete_aligned, address,
                         FreedAs{.origin = Origin::kNewArray}, alignment);
}

// Sized, nothrow, sized and aligned, nothrow and aligned.
HEAPWRIGHT_OPERATOR void operator delete(void* address, std::size_t bytes) noexcept {
  entry::hardened_delete(library, heapwright_delete, basic_operators.delete_one, address,
                         FreedAs{.origin = Origin::kNew, .bytes = bytes});
}
HEAPWRIGHT_OPERATOR void operator delete(void* address, const std::nothrow_t& /*tag*/) noexcept {
  basic_operators.delete_one(address);
}
HEAPWRIGHT_OPERATOR void operator delete(void* address, std::size_t bytes,
                                         std::align_val_t alignment) noexcept {
  entry::hardened_delete(library, heapwright_delete_aligned, basic_operators.delete_aligned, address,
                         FreedAs{.origin = Origin::kNew, .bytes = bytes}, alignment);
}
HEAPWRIGHT_OPERATOR void operator delete(void* address, std::align_val_t alignment,
                                         const std::nothrow_t& /*tag*/) noexcept {
  basic_operators.delete_aligned(address, alignment);
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address, const std::nothrow_t& /*tag*/) noexcept {
  basic_operators.delete_array(address);
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address, std::align_val_t alignment,
                                           const std::nothrow_t& /*tag*/) noexcept {
  basic_operators.delete_array_aligned(address, alignment);
}
// A program that replaces operator delete[] may leave this form to us.
HEAPWRIGHT_OPERATOR void operator delete[](void* address, std::size_t bytes) noexcept {
  if (basic_operators.delete_array != heapwright_delete_array ||
      basic_operators.delete_one != heapwright_delete) [[unlikely]] {
    basic_operators.delete_array(address);
  } else {
    library.free(address, {.origin = Origin::kNewArray, .bytes = bytes});
  }
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address, std::size_t bytes,
                                           std::align_val_t alignment) noexcept {
  if (basic_operators.delete_array_aligned != heapwright_delete_array_aligned ||
      basic_operators.delete_aligned != heapwright_delete_aligned) [[unlikely]] {
    basic_operators.delete_array_aligned(address, alignment);
  } else {
    library.free(address, {.origin = Origin::kNewArray, .bytes = bytes});
  }
}
