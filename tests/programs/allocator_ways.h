// Tables of every function that allocates or frees a block, for the fuzzer: the C family, the 8
// forms of operator new and the 12 of operator delete. Each Family has the functions to free its
// blocks that the standards permit.
#pragma once

#include <cstdlib>
#include <new>

#include "allocator_shadow.h"

extern "C" {
// C23 functions; null if the malloc under test lacks them.
void free_sized(void* block, std::size_t size) __attribute__((weak));
void free_aligned_sized(void* block, std::size_t alignment, std::size_t size) __attribute__((weak));
}

namespace heapwright::shadow {

// How a function's table entry changes size and alignment before the call.
enum class Shape { kAny, kCalloc, kAligned, kAlignedMultiple, kValloc, kPvalloc };

struct Way {
  const char* name;
  Family family;
  Shape shape;
  void* (*call)(std::size_t size, std::size_t alignment);
};

inline constexpr Way kWays[] = {
    {"malloc", Family::kPlain, Shape::kAny, [](std::size_t n, std::size_t) { return malloc(n); }},
    {"malloc", Family::kPlain, Shape::kAny, [](std::size_t n, std::size_t) { return malloc(n); }},
    {"malloc", Family::kPlain, Shape::kAny, [](std::size_t n, std::size_t) { return malloc(n); }},
    {"malloc", Family::kPlain, Shape::kAny, [](std::size_t n, std::size_t) { return malloc(n); }},
    {"calloc", Family::kPlain, Shape::kCalloc, [](std::size_t n, std::size_t) { return calloc(n, 1); }},
    {"calloc", Family::kPlain, Shape::kCalloc,
     [](std::size_t n, std::size_t) { return n % 24 == 0 ? calloc(n / 24, 24) : calloc(1, n); }},
    {"realloc", Family::kPlain, Shape::kAny, [](std::size_t n, std::size_t) { return realloc(nullptr, n); }},
    {"reallocarray", Family::kPlain, Shape::kAny,
     [](std::size_t n, std::size_t) { return reallocarray(nullptr, n, 1); }},
    {"aligned_alloc", Family::kStdAligned, Shape::kAlignedMultiple,
     [](std::size_t n, std::size_t a) { return aligned_alloc(a, n); }},
    {"memalign", Family::kOldAligned, Shape::kAligned,
     [](std::size_t n, std::size_t a) { return memalign(a, n); }},
    {"posix_memalign", Family::kOldAligned, Shape::kAligned,
     [](std::size_t n, std::size_t a) -> void* {
       void* block = nullptr;
       return posix_memalign(&block, a, n) == 0 ? block : nullptr;
     }},
    {"valloc", Family::kOldAligned, Shape::kValloc, [](std::size_t n, std::size_t) { return valloc(n); }},
#ifdef __GLIBC__
    {"pvalloc", Family::kOldAligned, Shape::kPvalloc, [](std::size_t n, std::size_t) { return pvalloc(n); }},
#endif
    {"new", Family::kNew, Shape::kAny, [](std::size_t n, std::size_t) { return ::operator new(n); }},
    {"new nothrow", Family::kNew, Shape::kAny,
     [](std::size_t n, std::size_t) { return ::operator new(n, std::nothrow); }},
    {"new[]", Family::kNewArray, Shape::kAny, [](std::size_t n, std::size_t) { return ::operator new[](n); }},
    {"new[] nothrow", Family::kNewArray, Shape::kAny,
     [](std::size_t n, std::size_t) { return ::operator new[](n, std::nothrow); }},
    {"new align", Family::kNewAligned, Shape::kAligned,
     [](std::size_t n, std::size_t a) { return ::operator new(n, std::align_val_t(a)); }},
    {"new align nothrow", Family::kNewAligned, Shape::kAligned,
     [](std::size_t n, std::size_t a) { return ::operator new(n, std::align_val_t(a), std::nothrow); }},
    {"new[] align", Family::kNewArrayAligned, Shape::kAligned,
     [](std::size_t n, std::size_t a) { return ::operator new[](n, std::align_val_t(a)); }},
    {"new[] align nothrow", Family::kNewArrayAligned, Shape::kAligned,
     [](std::size_t n, std::size_t a) { return ::operator new[](n, std::align_val_t(a), std::nothrow); }},
};

struct WayBack {
  const char* name;
  void (*call)(void* block, std::size_t size, std::size_t alignment);
};

inline constexpr WayBack kFree = {"free", [](void* p, std::size_t, std::size_t) { free(p); }};
inline constexpr WayBack kPlainBack[] = {
    kFree,
    {"free_sized",
     [](void* p, std::size_t n, std::size_t) { free_sized != nullptr ? free_sized(p, n) : free(p); }},
};
inline constexpr WayBack kStdAlignedBack[] = {
    kFree,
    {"free_aligned_sized",
     [](void* p, std::size_t n, std::size_t a) {
       free_aligned_sized != nullptr ? free_aligned_sized(p, a, n) : free(p);
     }},
};
inline constexpr WayBack kOldAlignedBack[] = {kFree};
inline constexpr WayBack kNewBack[] = {
    {"delete", [](void* p, std::size_t, std::size_t) { ::operator delete(p); }},
    {"delete sized", [](void* p, std::size_t n, std::size_t) { ::operator delete(p, n); }},
    {"delete nothrow", [](void* p, std::size_t, std::size_t) { ::operator delete(p, std::nothrow); }},
};
inline constexpr WayBack kNewArrayBack[] = {
    {"delete[]", [](void* p, std::size_t, std::size_t) { ::operator delete[](p); }},
    {"delete[] sized", [](void* p, std::size_t n, std::size_t) { ::operator delete[](p, n); }},
    {"delete[] nothrow", [](void* p, std::size_t, std::size_t) { ::operator delete[](p, std::nothrow); }},
};
inline constexpr WayBack kNewAlignedBack[] = {
    {"delete align", [](void* p, std::size_t, std::size_t a) { ::operator delete(p, std::align_val_t(a)); }},
    {"delete sized align",
     [](void* p, std::size_t n, std::size_t a) { ::operator delete(p, n, std::align_val_t(a)); }},
    {"delete align nothrow",
     [](void* p, std::size_t, std::size_t a) { ::operator delete(p, std::align_val_t(a), std::nothrow); }},
};
inline constexpr WayBack kNewArrayAlignedBack[] = {
    {"delete[] align",
     [](void* p, std::size_t, std::size_t a) { ::operator delete[](p, std::align_val_t(a)); }},
    {"delete[] sized align",
     [](void* p, std::size_t n, std::size_t a) { ::operator delete[](p, n, std::align_val_t(a)); }},
    {"delete[] align nothrow",
     [](void* p, std::size_t, std::size_t a) { ::operator delete[](p, std::align_val_t(a), std::nothrow); }},
};

inline const WayBack& way_back(Family family, Random& random) {
  const auto one_of = [&](const auto& table) -> const WayBack& {
    return table[random.below(std::size(table))];
  };
  switch (family) {
    case Family::kPlain:
      return one_of(kPlainBack);
    case Family::kStdAligned:
      return one_of(kStdAlignedBack);
    case Family::kOldAligned:
      return one_of(kOldAlignedBack);
    case Family::kNew:
      return one_of(kNewBack);
    case Family::kNewArray:
      return one_of(kNewArrayBack);
    case Family::kNewAligned:
      return one_of(kNewAlignedBack);
    case Family::kNewArrayAligned:
      return one_of(kNewArrayAlignedBack);
  }
  return kFree;
}

inline bool from_c(Family family) {
  return family == Family::kPlain || family == Family::kStdAligned || family == Family::kOldAligned;
}

}  // namespace heapwright::shadow
