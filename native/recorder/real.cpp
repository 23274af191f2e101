#include "real.h"

#include <dlfcn.h>
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "begin.h"

// glibc's; weak for musl.
extern "C" [[gnu::weak]] const char* gnu_get_libc_version() noexcept;

namespace heapwright::recorder {

namespace {

// 0: not looked for yet; 1: a thread is looking; 2: found.
std::atomic<int> found{0};
std::atomic<std::size_t> pool_used{0};

void* first_malloc(std::size_t size) {
  find_real();
  return real.malloc == first_malloc ? pool_allocate(size) : real.malloc(size);
}
void* first_calloc(std::size_t count, std::size_t size) {
  find_real();
  return real.calloc == first_calloc ? pool_allocate(count * size) : real.calloc(count, size);
}
void* first_realloc(void* block, std::size_t size) {
  find_real();
  return real.realloc == first_realloc ? (block == nullptr ? pool_allocate(size) : nullptr)
                                       : real.realloc(block, size);
}
void first_free(void* block) {
  find_real();
  if (real.free != first_free) {
    real.free(block);
  }
}

template <class F>
void find(F*& function, const char* name) {
  void* const symbol = dlsym(RTLD_NEXT, name);
  if (symbol != nullptr) {
    function = reinterpret_cast<F*>(symbol);
  }
}

// Whether the program's calls of malloc come here. They do not if the program has a malloc of its
// own.
bool is_in_front() {
  Dl_info theirs{};
  Dl_info ours{};
  return dladdr(dlsym(RTLD_DEFAULT, "malloc"), &theirs) != 0 && dladdr(&found, &ours) != 0 &&
         theirs.dli_fbase == ours.dli_fbase;
}

}  // namespace

Real real = {.malloc = first_malloc,
             .calloc = first_calloc,
             .realloc = first_realloc,
             .free = first_free,
             .memalign = nullptr,
             .aligned_alloc = nullptr,
             .posix_memalign = nullptr,
             .valloc = nullptr,
             .pvalloc = nullptr,
             .reallocarray = nullptr,
             .malloc_usable_size = nullptr,
             .free_sized = nullptr,
             .free_aligned_sized = nullptr,
             .fork = nullptr,
             .pthread_create = nullptr,
             .exit_now = nullptr};

bool real_is_found() { return found.load(std::memory_order_acquire) == 2; }

void forget_dl_error() {
  if (gnu_get_libc_version == nullptr) {
    dlerror();  // musl's takes no lock
  } else {
    // In glibc a search that succeeds clears the error.
    [[maybe_unused]] const void* const any = dlsym(RTLD_DEFAULT, "malloc");
  }
}

void find_real() {
  int none = 0;
  if (!found.compare_exchange_strong(none, 1, std::memory_order_acq_rel)) {
    // A second thread waits. The first one may come back here when dlsym calls malloc; it returns,
    // and the caller uses the pool.
    while (found.load(std::memory_order_acquire) == 1 && thread_state().location != Location::kAllocator) {
      sched_yield();
    }
    return;
  }
  ThreadState& self = thread_state();
  const Location before = self.location;
  self.location = Location::kAllocator;
  // `real` is set when all are found. Until then the pool serves what dlsym allocates, mostly error
  // messages.
  Real them = real;
  find(them.malloc, "malloc");
  find(them.calloc, "calloc");
  find(them.realloc, "realloc");
  find(them.free, "free");
  find(them.memalign, "memalign");
  find(them.aligned_alloc, "aligned_alloc");
  find(them.posix_memalign, "posix_memalign");
  find(them.valloc, "valloc");
  find(them.malloc_usable_size, "malloc_usable_size");
  find(them.fork, "fork");
  find(them.pthread_create, "pthread_create");
  find(them.exit_now, "_exit");
  // A search that finds nothing allocates an error message. A program's own malloc may not be ready
  // for that before main: GNU Common Lisp crashes. Such a program does not call these functions
  // here.
  if (is_in_front()) {
    find(them.pvalloc, "pvalloc");
    find(them.reallocarray, "reallocarray");
    find(them.free_sized, "free_sized");
    find(them.free_aligned_sized, "free_aligned_sized");
  }
  forget_dl_error();
  Dl_info library{};
  if (dladdr(reinterpret_cast<void*>(them.malloc), &library) != 0 && library.dli_fname != nullptr) {
    char name[64];
    (void)std::snprintf(name, sizeof(name), "%s%s", gnu_get_libc_version == nullptr ? "musl" : "glibc ",
                        gnu_get_libc_version == nullptr ? "" : gnu_get_libc_version());
    const char* const base = std::strrchr(library.dli_fname, '/');
    const char* const file = base == nullptr ? library.dli_fname : base + 1;
    // musl is its own loader, and the file may have either name.
    const bool is_libc = std::strncmp(file, "libc.", 5) == 0 || std::strncmp(file, "ld-musl-", 8) == 0;
    set_allocator(is_libc ? name : library.dli_fname);
  }
  configure();
  real = them;
  self.location = before;
  found.store(2, std::memory_order_release);
}

void* pool_allocate(std::size_t size) {
  constexpr std::size_t kHeader = 16;
  const std::size_t bytes = (size + kHeader + 15) & ~std::size_t{15};
  const std::size_t at =
      size > kPoolBytes ? kPoolBytes : pool_used.fetch_add(bytes, std::memory_order_relaxed);
  if (at + bytes > kPoolBytes || bytes < size) {
    return nullptr;
  }
  std::memcpy(pool + at, &size, sizeof(size));
  return pool + at + kHeader;
}

std::size_t pool_size(const void* block) {
  std::size_t size = 0;
  std::memcpy(&size, static_cast<const char*>(block) - 16, sizeof(size));
  return size;
}

}  // namespace heapwright::recorder
