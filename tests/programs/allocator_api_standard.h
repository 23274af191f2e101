// Defines the rows about the functions of C and POSIX, and older functions of the same kind.
#pragma once

#include "allocator_api.h"

namespace heapwright::api {

// Sizes that are volatile, so that the compiler does not know them.
inline volatile std::size_t huge = SIZE_MAX;
inline volatile std::size_t over = std::size_t{PTRDIFF_MAX} + 1;
inline volatile std::size_t most = PTRDIFF_MAX;
inline volatile std::size_t half = (SIZE_MAX >> 1U) + 2;  // times 2 wraps to 2
inline volatile std::size_t zero = 0;

inline void refused(Answer& answer, void* (*call)()) {
  errno = kKept;
  void* const block = call();
  answer.add("%s, errno %s", block == nullptr ? "NULL" : "a block", errno_name());
}

inline void given(Answer& answer, void* (*call)(), std::size_t usable, std::size_t alignment) {
  errno = kKept;
  void* const block = call();
  answer.add("%s, errno %s", block == nullptr ? "NULL" : "a block", errno_name());
  if (block != nullptr) {
    answer.add(", %s", aligned(block, alignment) ? "aligned" : "not aligned");
    answer.add(", usable %s", malloc_usable_size(block) >= usable ? "enough" : "too little");
    std::memset(block, 1, usable);
    free(block);
    answer.add(", errno %s after free", errno_name());
  }
}

// Reports whether a block keeps its contents when realloc or reallocarray fails.
inline void keeps(Answer& answer, void* (*call)(void* block)) {
  auto* const block = static_cast<char*>(malloc(100));
  std::memset(block, 7, 100);
  errno = kKept;
  void* const moved = call(block);
  answer.add("%s, errno %s",
             moved == nullptr ? "NULL"
             : moved == block ? "the old block"
                              : "a block",
             errno_name());
  if (moved == nullptr) {
    answer.add(", old block %s", block[0] == 7 && block[99] == 7 ? "kept" : "spoilt");
    free(block);
  }
}

inline void posix(Answer& answer, std::size_t alignment, std::size_t size) {
  char mark = 0;
  void* block = &mark;
  errno = kKept;
  const int result = posix_memalign(&block, alignment, size);
  answer.add("returns %s, errno %s, ", errno_name(result), errno_name());
  if (result != 0) {
    answer.add("pointer %s", block == &mark ? "untouched" : "touched");
  } else {
    answer.add("%s", aligned(block, alignment) ? "aligned" : "not aligned");
    free(block);
  }
}

#define GIVEN(call, usable, alignment) \
  [](Answer& a) { given(a, []() -> void* { return call; }, usable, alignment); }
#define REFUSED(call) [](Answer& a) { refused(a, []() -> void* { return call; }); }
#define KEEPS(call) [](Answer& a) { keeps(a, [](void* p) -> void* { return call; }); }
#define POSIX(alignment, size) [](Answer& a) { posix(a, alignment, size); }

inline const Row kStandardRows[] = {
    {"malloc(0)", GIVEN(malloc(zero), 0, 8)},
    {"malloc(1)", GIVEN(malloc(1), 1, 8)},
    {"malloc(16)", GIVEN(malloc(16), 16, 16)},
    {"malloc(1 GiB)",
     [](Answer& a) {
       errno = kKept;
       void* const block = malloc(kGiB);
       a.add("%s, errno %s", block != nullptr ? "a block" : "NULL", errno_name());
       free(block);
       a.add(", errno %s after free", errno_name());
     }},
    {"malloc(PTRDIFF_MAX)", REFUSED(malloc(most))},
    {"malloc(PTRDIFF_MAX + 1)", REFUSED(malloc(over))},
    {"malloc(SIZE_MAX)", REFUSED(malloc(huge))},
    {"malloc(SIZE_MAX - 100)", REFUSED(malloc(huge - 100))},
    {"malloc(0) gives two blocks",
     [](Answer& a) {
       void* const one = malloc(zero);
       void* const two = malloc(zero);
       a.add("%s", one != two ? "two" : "one");
     }},
    {"calloc(0, 8)", GIVEN(calloc(zero, 8), 0, 8)},
    {"calloc(8, 0)", GIVEN(calloc(8, zero), 0, 8)},
    {"calloc(10, 10)", GIVEN(calloc(10, 10), 100, 16)},
    {"calloc overflow", REFUSED(calloc(half, 2))},
    {"calloc(SIZE_MAX, SIZE_MAX)", REFUSED(calloc(huge, huge))},
    {"calloc(1, PTRDIFF_MAX + 1)", REFUSED(calloc(1, over))},
    {"realloc(NULL, 100)", GIVEN(realloc(nullptr, 100), 100, 16)},
    {"realloc(NULL, 0)", GIVEN(realloc(nullptr, zero), 0, 8)},
    {"realloc(p, 0)",
     [](Answer& a) {
       void* const block = malloc(100);
       errno = kKept;
       void* const moved = realloc(block, zero);
       a.add("%s, errno %s", moved == nullptr ? "NULL" : "a block", errno_name());
     }},
    {"realloc(p, PTRDIFF_MAX)", KEEPS(realloc(p, most))},
    {"realloc(p, PTRDIFF_MAX + 1)", KEEPS(realloc(p, over))},
    {"realloc(p, SIZE_MAX)", KEEPS(realloc(p, huge))},
    {"reallocarray overflow", KEEPS(reallocarray(p, half, 2))},
    {"reallocarray(NULL, overflow)", REFUSED(reallocarray(nullptr, half, 2))},
    {"reallocarray(NULL, 10, 10)", GIVEN(reallocarray(nullptr, 10, 10), 100, 16)},
    {"aligned_alloc(64, 128)", GIVEN(aligned_alloc(64, 128), 128, 64)},
    {"aligned_alloc(64, 100)", GIVEN(aligned_alloc(64, 100), 100, 64)},
    {"aligned_alloc(64, 0)", GIVEN(aligned_alloc(64, zero), 0, 64)},
    {"aligned_alloc(1, 10)", GIVEN(aligned_alloc(1, 10), 10, 8)},
    {"aligned_alloc(3, 16)", GIVEN(aligned_alloc(3 + zero, 16), 16, 1)},
    {"aligned_alloc(0, 16)", GIVEN(aligned_alloc(zero, 16), 16, 1)},
    {"aligned_alloc(64, SIZE_MAX)", REFUSED(aligned_alloc(64, huge))},
    {"aligned_alloc(64, PTRDIFF_MAX + 1)", REFUSED(aligned_alloc(64, over))},
    {"aligned_alloc(2^63, 16)", REFUSED(aligned_alloc(over, 16))},
    {"aligned_alloc(2^62, 2^62)", REFUSED(aligned_alloc(over / 2, over / 2))},
    {"memalign(48, 100)", GIVEN(memalign(48, 100), 100, 16)},
    {"memalign(64, 0)", GIVEN(memalign(64, zero), 0, 64)},
    {"memalign(0, 100)", GIVEN(memalign(zero, 100), 100, 8)},
    {"memalign(4096, 1)", GIVEN(memalign(4096, 1), 1, 4096)},
    {"memalign(1 GiB, 100)", GIVEN(memalign(kGiB, 100), 100, kGiB)},
    {"memalign(64, SIZE_MAX)", REFUSED(memalign(64, huge))},
    {"memalign(SIZE_MAX, 16)", REFUSED(memalign(huge, 16))},
    {"posix_memalign(64, 100)", POSIX(64, 100)},
    {"posix_memalign(64, 0)", POSIX(64, 0)},
    {"posix_memalign(1 GiB, 100)", POSIX(kGiB, 100)},
    {"posix_memalign(4, 100)", POSIX(4, 100)},
    {"posix_memalign(3, 100)", POSIX(3, 100)},
    {"posix_memalign(24, 100)", POSIX(24, 100)},
    {"posix_memalign(0, 100)", POSIX(0, 100)},
    {"posix_memalign(64, SIZE_MAX)", POSIX(64, huge)},
    {"posix_memalign(64, PTRDIFF_MAX + 1)", POSIX(64, over)},
    {"valloc(1)", GIVEN(valloc(1), 1, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)))},
    {"valloc(0)", GIVEN(valloc(zero), 0, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)))},
    {"valloc(SIZE_MAX)", REFUSED(valloc(huge))},
#ifdef __GLIBC__
    {"pvalloc(1)", GIVEN(pvalloc(1), 4096, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)))},
    {"pvalloc(0)", GIVEN(pvalloc(zero), 0, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)))},
    {"pvalloc(4097)", GIVEN(pvalloc(4097), 8192, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)))},
    {"pvalloc(SIZE_MAX)", REFUSED(pvalloc(huge))},
#endif
    {"malloc_usable_size(NULL)", [](Answer& a) { a.add("%zu", malloc_usable_size(nullptr)); }},
    {"malloc_usable_size, aligned",
     [](Answer& a) {
       auto* const block = static_cast<char*>(memalign(4096, 5000));
       const std::size_t usable = malloc_usable_size(block);
       a.add("%s", usable >= 5000 && usable < 16384 ? "plausible" : "not plausible");
       std::memset(block, 1, usable);
       free(block);
     }},
    {"free(NULL)",
     [](Answer& a) {
       errno = kKept;
       free(nullptr);
       a.add("errno %s", errno_name());
     }},
    {"free of 64 MiB", GIVEN(malloc(std::size_t{64} << 20U), std::size_t{64} << 20U, 16)},
    {"success leaves errno, many sizes",
     [](Answer& a) {
       errno = kKept;
       for (std::size_t size = 1; size < kGiB / 4; size += size / 3 + 1) {
         free(malloc(size));
         free(calloc(1, size));
         free(realloc(malloc(size / 2 + 1), size));
         free(memalign(128, size));
       }
       a.add("errno %s", errno_name());
     }},
};

}  // namespace heapwright::api
