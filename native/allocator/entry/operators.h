// C++'s operators new and delete as aliases of malloc and free. Include after symbols.h.
#pragma once

#include "symbols.h"

// operator new and new[]: plain, nothrow, aligned, both.
HEAPWRIGHT_EXPORT void* operator new(std::size_t bytes) { return entry::operator_new(library, bytes); }
HEAPWRIGHT_EXPORT void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return entry::operator_new_nothrow(library, bytes);
}
HEAPWRIGHT_EXPORT void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return entry::new_slow(library, bytes, static_cast<std::size_t>(alignment), false);
}
HEAPWRIGHT_EXPORT void* operator new(std::size_t bytes, std::align_val_t alignment,
                                     const std::nothrow_t& /*tag*/) noexcept {
  return entry::new_slow(library, bytes, static_cast<std::size_t>(alignment), true);
}
HEAPWRIGHT_ALIAS("_Znwm") void* operator new[](std::size_t);
HEAPWRIGHT_ALIAS("_ZnwmRKSt9nothrow_t") void* operator new[](std::size_t, const std::nothrow_t&) noexcept;
HEAPWRIGHT_ALIAS("_ZnwmSt11align_val_t") void* operator new[](std::size_t, std::align_val_t);
HEAPWRIGHT_ALIAS("_ZnwmSt11align_val_tRKSt9nothrow_t")
void* operator new[](std::size_t, std::align_val_t, const std::nothrow_t&) noexcept;

// The size given to a sized delete is not used: reading a tag is faster than computing a class from
// a size, and a wrong size does no harm.
//
// operator delete and delete[]: plain, sized, aligned, sized and aligned, nothrow, nothrow and
// aligned.
HEAPWRIGHT_ALIAS("free") void operator delete(void*) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete(void*, std::size_t) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete(void*, std::align_val_t) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete(void*, std::size_t, std::align_val_t) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete(void*, const std::nothrow_t&) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete(void*, std::align_val_t, const std::nothrow_t&) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete[](void*) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete[](void*, std::size_t) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete[](void*, std::align_val_t) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete[](void*, std::size_t, std::align_val_t) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete[](void*, const std::nothrow_t&) noexcept;
HEAPWRIGHT_ALIAS("free") void operator delete[](void*, std::align_val_t, const std::nothrow_t&) noexcept;
