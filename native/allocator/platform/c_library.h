// Makes the C libraries alike: glibc of any version and musl. It declares the types and functions
// that a library's headers lack, and the exception specification of its C functions.
#pragma once

#include <features.h>
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

// glibc's headers declare that C functions do not throw. musl's do not.
#ifdef __GLIBC__
#define HEAPWRIGHT_NOTHROW noexcept
#define HEAPWRIGHT_GLIBC_SINCE(minor) __GLIBC_PREREQ(2, minor)
using AioList = struct aiocb* const*;  // lio_listio's
#else
#define HEAPWRIGHT_NOTHROW
#define HEAPWRIGHT_GLIBC_SINCE(minor) 0
using AioList = struct aiocb* __restrict const*;
// The types of glibc's functions. A program can call these functions if it declares them itself.
struct mallinfo {
  int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
#define M_TRIM_THRESHOLD (-1)
#endif

// glibc has it since 2.33. zig's headers have it for every version, so CMake tries.
#ifndef HEAPWRIGHT_HAS_MALLINFO2
#define HEAPWRIGHT_HAS_MALLINFO2 HEAPWRIGHT_GLIBC_SINCE(33)
#endif
#if !HEAPWRIGHT_HAS_MALLINFO2
struct mallinfo2 {
  std::size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
#endif

// glibc has C11's threads since 2.28.
#if !defined(__GLIBC__) || HEAPWRIGHT_GLIBC_SINCE(28)
#include <threads.h>
#else
using thrd_t = pthread_t;
using thrd_start_t = int (*)(void*);
extern "C" int thrd_create(thrd_t*, thrd_start_t, void*);
#endif

// Second names of functions in the C library's archive, for static programs. A weak reference does
// not bring a name into the program; the option -Wl,-u,NAME does.
extern "C" {
[[gnu::weak]] decltype(pthread_create) __pthread_create;
#ifdef __GLIBC__
[[gnu::weak]] decltype(thrd_create) __thrd_create;
#endif
}

namespace heapwright::alloc::platform {

// Returns the environment in a constructor. glibc passes it as the third argument, and may not have
// set its variable yet. musl passes nothing, and has set the variable.
inline char** environment([[maybe_unused]] char** third_argument) {
#ifdef __GLIBC__
  return third_argument;
#else
  return environ;
#endif
}

inline auto second_thrd_create() {
#ifdef __GLIBC__
  return __thrd_create;
#else
  // musl's thrd_create has no second name. It makes this call, in which the attributes mean that
  // the thread's function returns an int.
  using Function = int (*)(thrd_t*, thrd_start_t, void*);
  constexpr Function kCreate = [](thrd_t* thread, thrd_start_t body, void* argument) {
    const auto* const attributes = reinterpret_cast<const pthread_attr_t*>(-1L);
    void* const function = reinterpret_cast<void*>(body);
    const int error =
        __pthread_create(thread, attributes, reinterpret_cast<void* (*)(void*)>(function), argument);
    return error == 0 ? int{thrd_success} : error == EAGAIN ? int{thrd_nomem} : int{thrd_error};
  };
  return __pthread_create == nullptr ? nullptr : kCreate;
#endif
}

}  // namespace heapwright::alloc::platform
