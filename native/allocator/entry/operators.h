// Exports C++'s operators new and delete. Include after symbols.h.
//
// Only the basic operators have a body, or are aliases of free. The other forms jump to them
// (basic_operators.h), as those of a C++ runtime do: the program may have replaced them.
#pragma once

#include "replaced_operators.h"
#include "symbols.h"

HEAPWRIGHT_OPERATOR void* operator new(std::size_t bytes) { return entry::operator_new(library, bytes); }
HEAPWRIGHT_OPERATOR void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return entry::new_slow(library, bytes, static_cast<std::size_t>(alignment), false);
}
HEAPWRIGHT_OPERATOR void* operator new[](std::size_t bytes) { return entry::basic_operators.new_one(bytes); }
HEAPWRIGHT_OPERATOR void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return entry::basic_operators.new_aligned(bytes, alignment);
}

// Nothrow.
HEAPWRIGHT_OPERATOR void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return entry::new_is_ours()
             ? entry::operator_new_nothrow(library, bytes)
             : entry::call_replaced("_ZnwmRKSt9nothrow_t", entry::basic_operators.new_one, bytes);
}
HEAPWRIGHT_OPERATOR void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return entry::new_array_is_ours()
             ? entry::operator_new_nothrow(library, bytes)
             : entry::call_replaced("_ZnamRKSt9nothrow_t", entry::basic_operators.new_array, bytes);
}
HEAPWRIGHT_OPERATOR void* operator new(std::size_t bytes, std::align_val_t alignment,
                                       const std::nothrow_t& /*tag*/) noexcept {
  return entry::new_aligned_is_ours()
             ? entry::new_slow(library, bytes, static_cast<std::size_t>(alignment), true)
             : entry::call_replaced("_ZnwmSt11align_val_tRKSt9nothrow_t", entry::basic_operators.new_aligned,
                                    bytes, alignment);
}
HEAPWRIGHT_OPERATOR void* operator new[](std::size_t bytes, std::align_val_t alignment,
                                         const std::nothrow_t& /*tag*/) noexcept {
  return entry::new_array_aligned_is_ours()
             ? entry::new_slow(library, bytes, static_cast<std::size_t>(alignment), true)
             : entry::call_replaced("_ZnamSt11align_val_tRKSt9nothrow_t",
                                    entry::basic_operators.new_array_aligned, bytes, alignment);
}

// The size given to a sized delete is not used: reading a tag is faster than computing a class from
// a size, and a wrong size does no harm.
HEAPWRIGHT_OPERATOR HEAPWRIGHT_ALIAS("free") void operator delete(void*) noexcept;
HEAPWRIGHT_OPERATOR HEAPWRIGHT_ALIAS("free") void operator delete(void*, std::align_val_t) noexcept;
HEAPWRIGHT_OPERATOR void operator delete[](void* address) noexcept {
  entry::basic_operators.delete_one(address);
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address, std::align_val_t alignment) noexcept {
  entry::basic_operators.delete_aligned(address, alignment);
}

// Sized, nothrow, sized and aligned, nothrow and aligned.
HEAPWRIGHT_OPERATOR void operator delete(void* address, std::size_t /*bytes*/) noexcept {
  entry::basic_operators.delete_one(address);
}
HEAPWRIGHT_OPERATOR void operator delete(void* address, const std::nothrow_t& /*tag*/) noexcept {
  entry::basic_operators.delete_one(address);
}
HEAPWRIGHT_OPERATOR void operator delete(void* address, std::size_t /*bytes*/,
                                         std::align_val_t alignment) noexcept {
  entry::basic_operators.delete_aligned(address, alignment);
}
HEAPWRIGHT_OPERATOR void operator delete(void* address, std::align_val_t alignment,
                                         const std::nothrow_t& /*tag*/) noexcept {
  entry::basic_operators.delete_aligned(address, alignment);
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address, std::size_t /*bytes*/) noexcept {
  entry::basic_operators.delete_array(address);
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address, const std::nothrow_t& /*tag*/) noexcept {
  entry::basic_operators.delete_array(address);
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address, std::size_t /*bytes*/,
                                           std::align_val_t alignment) noexcept {
  entry::basic_operators.delete_array_aligned(address, alignment);
}
HEAPWRIGHT_OPERATOR void operator delete[](void* address, std::align_val_t alignment,
                                           const std::nothrow_t& /*tag*/) noexcept {
  entry::basic_operators.delete_array_aligned(address, alignment);
}
