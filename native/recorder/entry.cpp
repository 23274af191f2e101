// Exports the functions that the recorder puts in front of libc's, and the constructor and
// destructor that run when the process begins and exits.
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "begin.h"
#include "sampling.h"
#if HEAPWRIGHT_SAMPLING
#include "sample_calls.h"
#else
#include "calls.h"
#endif

#define HEAPWRIGHT_EXPORT extern "C" [[gnu::visibility("default")]]

using namespace heapwright::recorder;  // NOLINT(google-build-using-namespace): the names below must be global

HEAPWRIGHT_EXPORT void* malloc(std::size_t size) {
  return on_alloc(Tag::kMalloc, size, [=] { return real.malloc(size); });
}

HEAPWRIGHT_EXPORT void* calloc(std::size_t count, std::size_t size) {
  return on_alloc(Tag::kCalloc, count * size, [=] { return real.calloc(count, size); });
}

HEAPWRIGHT_EXPORT void free(void* block) {
  if (block != nullptr) {
    on_free(Tag::kFree, block, [=] { real.free(block); });
  }
}

// C23. If the real allocator lacks one of these, free() is called.
HEAPWRIGHT_EXPORT void free_sized(void* block, std::size_t size) {
  if (block != nullptr) {
    on_free(Tag::kFreeSized, block,
            [=] { real.free_sized != nullptr ? real.free_sized(block, size) : real.free(block); });
  }
}

HEAPWRIGHT_EXPORT void free_aligned_sized(void* block, std::size_t alignment, std::size_t size) {
  if (block != nullptr) {
    on_free(Tag::kFreeSized, block, [=] {
      real.free_aligned_sized != nullptr ? real.free_aligned_sized(block, alignment, size) : real.free(block);
    });
  }
}

namespace {

// A realloc outside kProgram, or of a block from the bootstrap pool, which moves to the real
// allocator.
template <class F>
[[gnu::noinline, gnu::cold]] void* on_realloc_slow(ThreadState& self, void* block, std::size_t size,
                                                   F real_call) {
  if (in_pool(block)) {
    void* const moved = malloc(size);
    if (moved != nullptr) {
      const std::size_t old = pool_size(block);
      std::memcpy(moved, block, old < size ? old : size);
    }
    return moved;
  }
  return self.location == Location::kAllocator ? real_call() : on_realloc(self, block, size, true, real_call);
}

// realloc and reallocarray; with nullptr they are malloc.
//
// block      the block or nullptr
// size       its new size in bytes
// real_call  calls the real function, and returns the new address or nullptr
template <class F>
[[gnu::always_inline]] inline void* realloc_or_alloc(void* block, std::size_t size, F real_call) {
  if (block == nullptr) {
    return on_alloc(Tag::kMalloc, size, real_call);
  }
  ThreadState& self = self_state;
  // In a sample the filter has the pool's blocks, so that only one bit is looked at.
  const bool slow = kSampling ? may_be_chosen(block) && in_pool(block)
                              : self.location != Location::kProgram || in_pool(block);
  if (HEAPWRIGHT_UNLIKELY(slow)) {
    return on_realloc_slow(self, block, size, real_call);
  }
  return on_realloc(self, block, size, false, real_call);
}

}  // namespace

HEAPWRIGHT_EXPORT void* realloc(void* block, std::size_t size) {
  return realloc_or_alloc(block, size, [=] { return real.realloc(block, size); });
}

HEAPWRIGHT_EXPORT void* reallocarray(void* block, std::size_t count, std::size_t size) {
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    count_failure();
    errno = ENOMEM;
    return nullptr;
  }
  return realloc_or_alloc(block, bytes, [=] {
    return real.reallocarray != nullptr ? real.reallocarray(block, count, size) : real.realloc(block, bytes);
  });
}

HEAPWRIGHT_EXPORT void* memalign(std::size_t alignment, std::size_t size) {
  if (real.memalign == nullptr) {
    find_real();
  }
  return on_aligned_alloc(alignment, size, [=] { return real.memalign(alignment, size); });
}

HEAPWRIGHT_EXPORT void* aligned_alloc(std::size_t alignment, std::size_t size) {
  if (real.aligned_alloc == nullptr) {
    find_real();
  }
  return on_aligned_alloc(alignment, size, [=] { return real.aligned_alloc(alignment, size); });
}

HEAPWRIGHT_EXPORT int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  if (real.posix_memalign == nullptr) {
    find_real();
  }
  int status = 0;
  on_aligned_alloc(alignment, size, [&]() -> void* {
    status = real.posix_memalign(result, alignment, size);
    return status == 0 ? *result : nullptr;
  });
  return status;
}

HEAPWRIGHT_EXPORT void* valloc(std::size_t size) {
  if (real.valloc == nullptr) {
    find_real();
  }
  return on_aligned_alloc(static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), size,
                          [=] { return real.valloc(size); });
}

HEAPWRIGHT_EXPORT void* pvalloc(std::size_t size) {
  if (real.pvalloc == nullptr) {
    find_real();
  }
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t bytes = (size + page - 1) & ~(page - 1);
  return on_aligned_alloc(page, bytes, [=] {  // musl has none
    return real.pvalloc != nullptr ? real.pvalloc(size) : real.memalign(page, bytes);
  });
}

HEAPWRIGHT_EXPORT std::size_t malloc_usable_size(void* block) {
  if (block == nullptr) {
    return 0;
  }
  if (in_pool(block)) {
    return pool_size(block);
  }
  if (real.malloc_usable_size == nullptr) {
    find_real();
  }
  ThreadState& self = self_state;
  if (!kSampling && self.location != Location::kAllocator) {
    record_other(self, Other::kUsableSize, reinterpret_cast<std::uint64_t>(block));
  }
  return real.malloc_usable_size(block);
}

HEAPWRIGHT_EXPORT pid_t fork() {
  if (real.fork == nullptr) {
    find_real();
  }
  const pid_t child = real.fork();
  if (child > 0) {
    const sys::KeepErrno keep;
    record_other(self_state, Other::kFork, static_cast<std::uint64_t>(child));
  }
  return child;
}

namespace {

void finish_in_this_thread() {
  ThreadState& self = self_state;
  const InRecorder in_recorder(self);
  finish_recording(self);
}

}  // namespace

HEAPWRIGHT_EXPORT void _exit(int status) {
  finish_in_this_thread();
  if (real.exit_now != nullptr) {
    real.exit_now(status);
  }
  for (;;) {
    syscall(SYS_exit_group, status);
  }
}

HEAPWRIGHT_EXPORT void _Exit(int status) { _exit(status); }

// Declared in include/heapwright.h.
HEAPWRIGHT_EXPORT void heapwright_phase(const char* name) {
  if (name == nullptr) {
    return;
  }
  const sys::KeepErrno keep;
  ThreadState& self = self_state;
  if (!recording()) {
    const InRecorder in_recorder(self);
    // In a forked child this may be the first event, and borrow() begins the child's recording.
    Writer* const writer = borrow(self);
    if (writer == nullptr) {
      return;
    }
    return_writer(*writer);
  }
  record_other(self, Other::kPhase, phase_number(name));
}

namespace {

void on_phase_signal(int /*signal*/) { heapwright_phase("signal"); }

[[gnu::constructor]] void on_process_start() {
  find_real();
  ThreadState& self = self_state;
  {
    const InRecorder in_recorder(self);
    pthread_atfork(nullptr, nullptr, on_fork_in_child);
    if constexpr (kSampling) {
      watch_forks();
    }
    if (self.writer->at >= self.writer->limit) {
      refill(self);  // begins the recording, so that a program that allocates nothing has a trace too
    }
  }
  if (recording() && phase_signal() > 0) {
    struct sigaction action{};
    action.sa_handler = on_phase_signal;
    action.sa_flags = SA_RESTART;
    sigaction(phase_signal(), &action, nullptr);
  }
  if constexpr (kSampling) {
    watch_window_signal();
  }
}

[[gnu::destructor]] void on_process_exit() { finish_in_this_thread(); }

}  // namespace
