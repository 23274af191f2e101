// C++'s operators of a hardened build. A block records which operator allocated it; the delete must
// match it, and the size given to a sized delete must be right. Include after symbols.h.
#pragma once

#include "symbols.h"

namespace heapwright::alloc::entry {

template <class Library>
void* with_origin(Library& library, void* block, Origin origin) {
  if (block != nullptr) {
    library.set_origin(block, origin);
  }
  return block;
}

}  // namespace heapwright::alloc::entry

HEAPWRIGHT_EXPORT void* operator new(std::size_t bytes) {
  return entry::with_origin(library, entry::operator_new(library, bytes), Origin::kNew);
}
HEAPWRIGHT_EXPORT void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return entry::with_origin(library, entry::operator_new_nothrow(library, bytes), Origin::kNew);
}
HEAPWRIGHT_EXPORT void* operator new(std::size_t bytes, std::align_val_t alignment) {
  void* const block = entry::new_slow(library, bytes, static_cast<std::size_t>(alignment), false);
  return entry::with_origin(library, block, Origin::kNew);
}
HEAPWRIGHT_EXPORT void* operator new(std::size_t bytes, std::align_val_t alignment,
                                     const std::nothrow_t& /*tag*/) noexcept {
  void* const block = entry::new_slow(library, bytes, static_cast<std::size_t>(alignment), true);
  return entry::with_origin(library, block, Origin::kNew);
}
HEAPWRIGHT_EXPORT void* operator new[](std::size_t bytes) {
  return entry::with_origin(library, entry::operator_new(library, bytes), Origin::kNewArray);
}
HEAPWRIGHT_EXPORT void* operator new[](std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return entry::with_origin(library, entry::operator_new_nothrow(library, bytes), Origin::kNewArray);
}
HEAPWRIGHT_EXPORT void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  void* const block = entry::new_slow(library, bytes, static_cast<std::size_t>(alignment), false);
  return entry::with_origin(library, block, Origin::kNewArray);
}
HEAPWRIGHT_EXPORT void* operator new[](std::size_t bytes, std::align_val_t alignment,
                                       const std::nothrow_t& /*tag*/) noexcept {
  void* const block = entry::new_slow(library, bytes, static_cast<std::size_t>(alignment), true);
  return entry::with_origin(library, block, Origin::kNewArray);
}

HEAPWRIGHT_EXPORT void operator delete(void* address) noexcept {
  library.free(address, {.origin = Origin::kNew});
}
HEAPWRIGHT_EXPORT void operator delete(void* address, std::size_t bytes) noexcept {
  library.free(address, {.origin = Origin::kNew, .bytes = bytes});
}
HEAPWRIGHT_EXPORT void operator delete[](void* address) noexcept {
  library.free(address, {.origin = Origin::kNewArray});
}
HEAPWRIGHT_EXPORT void operator delete[](void* address, std::size_t bytes) noexcept {
  library.free(address, {.origin = Origin::kNewArray, .bytes = bytes});
}
HEAPWRIGHT_EXPORT void operator delete(void* address, std::size_t bytes, std::align_val_t /*tag*/) noexcept {
  library.free(address, {.origin = Origin::kNew, .bytes = bytes});
}
HEAPWRIGHT_EXPORT void operator delete[](void* address, std::size_t bytes,
                                         std::align_val_t /*tag*/) noexcept {
  library.free(address, {.origin = Origin::kNewArray, .bytes = bytes});
}
HEAPWRIGHT_ALIAS("_ZdlPv") void operator delete(void*, std::align_val_t) noexcept;
HEAPWRIGHT_ALIAS("_ZdlPv") void operator delete(void*, const std::nothrow_t&) noexcept;
HEAPWRIGHT_ALIAS("_ZdlPv") void operator delete(void*, std::align_val_t, const std::nothrow_t&) noexcept;
HEAPWRIGHT_ALIAS("_ZdaPv") void operator delete[](void*, std::align_val_t) noexcept;
HEAPWRIGHT_ALIAS("_ZdaPv") void operator delete[](void*, const std::nothrow_t&) noexcept;
HEAPWRIGHT_ALIAS("_ZdaPv") void operator delete[](void*, std::align_val_t, const std::nothrow_t&) noexcept;
