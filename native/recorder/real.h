// Finds the real allocator: the next definitions after the recorder in the search order of the
// dynamic linker. They are those of another preloaded library, or of libc.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstddef>

namespace heapwright::recorder {

// The real functions; nullptr for one that does not exist. malloc, calloc, realloc and free are
// never nullptr: they begin as functions that call find_real() first.
struct Real {
  void* (*malloc)(std::size_t);
  void* (*calloc)(std::size_t, std::size_t);
  void* (*realloc)(void*, std::size_t);
  void (*free)(void*);
  void* (*memalign)(std::size_t, std::size_t);
  void* (*aligned_alloc)(std::size_t, std::size_t);
  int (*posix_memalign)(void**, std::size_t, std::size_t);
  void* (*valloc)(std::size_t);
  void* (*pvalloc)(std::size_t);
  void* (*reallocarray)(void*, std::size_t, std::size_t);
  std::size_t (*malloc_usable_size)(void*);
  void (*free_sized)(void*, std::size_t);
  void (*free_aligned_sized)(void*, std::size_t, std::size_t);
  pid_t (*fork)();
  int (*pthread_create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  void (*exit_now)(int);
};

extern Real real;

// Drops the error of a failed dlsym or dlopen: the program must not find it. glibc's dlerror would
// translate the message under the lock of gettext, and the process's first malloc may come from a
// function that holds this lock (bindtextdomain). A search that succeeds drops the message first.
void drop_dl_error();
// Finds all real functions and configures the recording. If another thread is doing so already,
// waits until it is done.
void find_real();
// Whether find_real() is done.
bool real_is_found();

// The bootstrap pool: dlsym may allocate while it looks for the real malloc, and gets memory from
// here, which is never given back.
inline constexpr std::size_t kPoolBytes = 16 * 1024;
alignas(16) inline char pool[kPoolBytes];

[[gnu::always_inline]] inline bool in_pool(const void* block) {
  return static_cast<std::size_t>(static_cast<const char*>(block) - pool) < kPoolBytes;
}
void* pool_allocate(std::size_t size);
std::size_t pool_size(const void* block);

}  // namespace heapwright::recorder
