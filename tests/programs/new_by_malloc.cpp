// A malloc whose operators new and delete call malloc and free, as those of many libraries do. It
// passes each call of malloc on to glibc's.
#include <cstddef>
#include <new>

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void __libc_free(void* block);

void* malloc(std::size_t bytes) noexcept { return __libc_malloc(bytes); }
void* calloc(std::size_t count, std::size_t bytes) noexcept { return __libc_calloc(count, bytes); }
void* realloc(void* block, std::size_t bytes) noexcept { return __libc_realloc(block, bytes); }
void free(void* block) noexcept { __libc_free(block); }
}

void* operator new(std::size_t bytes) {
  void* const block = malloc(bytes);
  if (block == nullptr) {
    throw std::bad_alloc();
  }
  return block;
}
void operator delete(void* block) noexcept { free(block); }
void operator delete(void* block, std::size_t /*bytes*/) noexcept { free(block); }
