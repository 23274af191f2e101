// The allocator behind the recorder: whatever the dynamic linker finds next after us, be it the C library's or another preloaded one.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace heapwright::recorder {

// nullptr for what there is not. malloc, calloc, realloc and free are never nullptr: until the real ones are known, they find them.
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
  void (*exit_now)(int);
};

extern Real real;

// Finds them all; whoever comes second waits. Also configures the recording.
void find_real();

// What dlsym itself allocates while the real malloc is being looked for comes from a small pool, and is never given back.
inline constexpr std::size_t kPoolBytes = 16 * 1024;
alignas(16) inline char pool[kPoolBytes];

[[gnu::always_inline]] inline bool in_pool(const void* block) {
  return static_cast<std::size_t>(static_cast<const char*>(block) - pool) < kPoolBytes;
}
void* pool_allocate(std::size_t size);
std::size_t pool_size(const void* block);

}  // namespace heapwright::recorder
