// Defines the bodies of malloc, calloc, realloc and the aligned functions. A Library provides:
//
//     void* allocate(std::size_t)            fast; nullptr: call allocate_slow
//     void* allocate_second(std::size_t)     fast enough for frequent cases; nullptr: call allocate_rest
//     void* allocate_rest(std::size_t)       nullptr: out of memory; errno untouched
//     void* allocate_slow(std::size_t)       both
//     void* allocate_aligned(std::size_t bytes, std::size_t alignment)
//     void* allocate_zeroed(std::size_t)     slow
//     void free(void*)                       errno untouched
//     std::size_t class_size(const void*)    fast; 0: call usable
//     bool fits_in_place(std::size_t usable, std::size_t bytes)    whether realloc keeps the block
//     std::size_t usable(const void*)
//     void* resize(void*, std::size_t)       in place or by moving pages; nullptr: caller copies
//
// Only these functions set errno, as glibc's manual says: ENOMEM or EINVAL, never on success, never
// in free.
#pragma once

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../core/config.h"
#include "../core/free_list.h"
#include "../platform/platform.h"

namespace heapwright::alloc::entry {

inline void* out_of_memory() {
  errno = ENOMEM;
  return nullptr;
}

template <class Library>
[[gnu::noinline]] void* allocate_rest(Library& library, std::size_t bytes) {
  void* const block = library.allocate_rest(bytes);
  return block != nullptr ? block : out_of_memory();
}

template <class Library>
[[gnu::noinline]] void* allocate_second(Library& library, std::size_t bytes) {
  void* const block = library.allocate_second(bytes);
  return block != nullptr ? block : allocate_rest(library, bytes);
}

// Cold, so that the fast path saves no register for this call.
template <class Library>
HEAPWRIGHT_COLD void* allocate_slow(Library& library, std::size_t bytes) {
  return allocate_second(library, bytes);
}

template <class Library>
HEAPWRIGHT_INLINE void* allocate(Library& library, std::size_t bytes) {
  void* const block = library.allocate(bytes);
  return block != nullptr ? block : allocate_slow(library, bytes);
}

template <class Library>
void* allocate_zeroed(Library& library, std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    return out_of_memory();
  }
  void* block = library.allocate(bytes);
  if (block != nullptr) [[likely]] {
    return std::memset(block, 0, bytes);
  }
  block = library.allocate_zeroed(bytes);
  return block != nullptr ? block : out_of_memory();
}

template <class Library>
void* reallocate(Library& library, void* address, std::size_t bytes) {
  if (address == nullptr) {
    return allocate(library, bytes);
  }
  if (bytes == 0) {  // as glibc does; C23 leaves it undefined
    library.free(address);
    return nullptr;
  }
  std::size_t usable = library.class_size(address);
  if (library.fits_in_place(usable, bytes)) {
    return address;
  }
  const bool has_class = usable != 0;
  if (!has_class) {
    if (void* const same = library.resize(address, bytes); same != nullptr) {
      return same;
    }
    usable = library.usable(address);
  }
  if (usable == 0) {  // not a block; free() reports it
    library.free(address);
    return out_of_memory();
  }
  void* block = library.allocate(bytes);
  block = block != nullptr ? block : library.allocate_slow(bytes);
  if (block == nullptr) {
    // All free memory has returned to the kernel now, so a large block may have room to grow.
    block = has_class ? nullptr : library.resize(address, bytes);
    return block != nullptr ? block : out_of_memory();
  }
  std::memcpy(block, address, usable < bytes ? usable : bytes);
  library.free(address);
  return block;
}

template <class Library>
void* reallocate_array(Library& library, void* address, std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  return __builtin_mul_overflow(count, size, &bytes) ? out_of_memory() : reallocate(library, address, bytes);
}

template <class Library>
void* allocate_aligned(Library& library, std::size_t alignment, std::size_t bytes) {
  void* const block = library.allocate_aligned(bytes, alignment);
  return block != nullptr ? block : out_of_memory();
}

// C17 and glibc ≥ 2.38: the alignment must be a power of two; the size need not be a multiple of
// it.
template <class Library>
void* aligned_alloc(Library& library, std::size_t alignment, std::size_t bytes) {
  if (!std::has_single_bit(alignment)) {
    errno = EINVAL;
    return nullptr;
  }
  return allocate_aligned(library, alignment, bytes);
}

// The older function: rounds the alignment up to a power of two, as glibc does.
template <class Library>
void* memalign(Library& library, std::size_t alignment, std::size_t bytes) {
  if (alignment > SIZE_MAX / 2 + 1) {
    errno = EINVAL;
    return nullptr;
  }
  return allocate_aligned(library, std::bit_ceil(alignment), bytes);
}

// Returns the error code. On failure *result and errno are unchanged.
template <class Library>
int posix_memalign(Library& library, void** result, std::size_t alignment, std::size_t bytes) {
  if (!std::has_single_bit(alignment) || alignment % sizeof(void*) != 0) {
    return EINVAL;
  }
  void* const block = library.allocate_aligned(bytes, alignment);
  if (block == nullptr) {
    return ENOMEM;
  }
  *result = block;
  return 0;
}

template <class Library>
void* valloc(Library& library, std::size_t bytes) {
  return allocate_aligned(library, platform::page_size(), bytes);
}

template <class Library>
void* pvalloc(Library& library, std::size_t bytes) {
  const std::size_t page = platform::page_size();
  if (bytes > SIZE_MAX - page) {
    return out_of_memory();
  }
  return allocate_aligned(library, page, bytes == 0 ? page : round_up(bytes, page));
}

}  // namespace heapwright::alloc::entry
