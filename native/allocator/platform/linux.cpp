// Implements the platform functions for Linux. See platform.h for their contracts.
#include <elf.h>
#include <linux/futex.h>
#include <linux/random.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "platform.h"

// The C library's recursive lock of its list of open files; weak for C libraries without it.
extern "C" {
[[gnu::weak]] void _IO_list_lock() noexcept;
[[gnu::weak]] void _IO_list_unlock() noexcept;
[[gnu::weak]] void _IO_list_resetlock() noexcept;
}

namespace heapwright::alloc::platform {

namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0  // then the address is only a hint, and map_at() compares the result
#endif

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // older C libraries do not know it
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // Linux 5.18
#endif
constexpr std::size_t kMaxPages = 512;
constexpr std::size_t kMaxBytes = 2 << 20U;               // at most kMaxPages of any kernel
using PageStates = std::array<unsigned char, kMaxPages>;  // of mincore: bit 0 says whether it is in memory

class KeepErrno {
 public:
  KeepErrno() : value_(errno) {}
  ~KeepErrno() { errno = value_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int value_;
};

// Returns the memory of pages to the kernel, also of pages that the program has locked (mlockall).
// Returns whether they read as zero then: qemu's user emulation ignores the second request, and
// reports success.
bool discard(void* address, std::size_t bytes) {
  if (madvise(address, bytes, MADV_DONTNEED) == 0) {
    return true;
  }
  if (errno != EINVAL) {
    return false;
  }
  if (madvise(address, bytes, MADV_DONTNEED_LOCKED) != 0) {
    return false;
  }
  for (std::size_t done = 0; done < bytes; done += kMaxBytes) {
    if (resident_pages(static_cast<char*>(address) + done, std::min(bytes - done, kMaxBytes)) != 0) {
      return false;
    }
  }
  return true;
}

void* succeeded(void* result) { return result == MAP_FAILED ? nullptr : result; }

}  // namespace

constinit std::size_t known_page_size = 0;

[[gnu::cold]] std::size_t ask_page_size() {
  __atomic_store_n(&known_page_size, getauxval(AT_PAGESZ), __ATOMIC_RELAXED);
  return known_page_size;
}

void* map(std::size_t bytes) {
  const KeepErrno keep;
  return succeeded(mmap(nullptr, bytes, kReadWrite, kPrivate, -1, 0));
}

bool map_at(void* address, std::size_t bytes) {
#ifdef __SANITIZE_THREAD__
  return false;  // ThreadSanitizer allows only addresses that it knows, and would map address 0
#endif
  const KeepErrno keep;
  void* const got = mmap(address, bytes, kReadWrite, kPrivate | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != MAP_FAILED && got != address) {
    munmap(got, bytes);
  }
  return got == address;
}

void* reserve(std::size_t bytes) {
  const KeepErrno keep;
  return succeeded(mmap(nullptr, bytes, PROT_NONE, kPrivate, -1, 0));
}

bool commit(void* address, std::size_t bytes) {
  const KeepErrno keep;
  return mprotect(address, bytes, kReadWrite) == 0;
}

bool release(void* address, std::size_t bytes) {
  const KeepErrno keep;  // mprotect would leave the pages counted (vm.overcommit_memory=2)
  return mmap(address, bytes, PROT_NONE, kPrivate | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool unmap(void* address, std::size_t bytes) {
  const KeepErrno keep;
  if (munmap(address, bytes) == 0) {
    return true;
  }
  if (madvise(address, bytes, MADV_DONTNEED) != 0) {
    madvise(address, bytes, MADV_DONTNEED_LOCKED);
  }
  return false;
}

void* remap(void* address, std::size_t bytes, std::size_t wanted) {
  const KeepErrno keep;
  return succeeded(mremap(address, bytes, wanted, MREMAP_MAYMOVE));
}

void purge(void* address, std::size_t bytes) {
  const KeepErrno keep;
  if (!discard(address, bytes)) {
    std::memset(address, 0, bytes);
  }
}

void clear(void* address, std::size_t bytes) {
  const KeepErrno keep;
  const std::size_t page = page_size();
  PageStates pages;  // NOLINT(cppcoreguidelines-pro-type-member-init): the kernel fills it
  auto* at = static_cast<char*>(address);
  while (bytes >= page) {
    const std::size_t count = std::min(bytes, kMaxBytes) / page;
    if (mincore(at, count * page, pages.data()) != 0) {
      pages.fill(1);
    }
    for (std::size_t i = 0; i < count;) {
      const bool resident = (pages[i] & 1U) != 0;
      const std::size_t first = i;
      while (i < count && ((pages[i] & 1U) != 0) == resident) {
        ++i;
      }
      char* const run = at + first * page;
      if (resident || !discard(run, (i - first) * page)) {  // a page without memory may have been swapped out
        std::memset(run, 0, (i - first) * page);
      }
    }
    at += count * page;
    bytes -= count * page;
  }
  std::memset(at, 0, bytes);
}

bool protect(void* address, std::size_t bytes) {
  const KeepErrno keep;
  return mprotect(address, bytes, PROT_NONE) == 0;
}

void advise_huge_pages(void* address, std::size_t bytes, HugePageMode mode) {
  const KeepErrno keep;
  if (mode != HugePageMode::kAuto) {
    madvise(address, bytes, mode == HugePageMode::kNever ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  }
}

bool collapse(void* address, std::size_t bytes) {
  const KeepErrno keep;
  return madvise(address, bytes, MADV_COLLAPSE) == 0;
}

std::size_t resident_pages(void* address, std::size_t bytes) {
  const KeepErrno keep;
  PageStates pages;  // NOLINT(cppcoreguidelines-pro-type-member-init): the kernel fills it
  const std::size_t count = bytes / page_size();
  if (count > kMaxPages || mincore(address, bytes, pages.data()) != 0) {
    return 0;
  }
  std::size_t resident = 0;
  for (std::size_t i = 0; i < count; ++i) {
    resident += pages[i] & 1U;
  }
  return resident;
}

std::uint64_t cpu_us() {
  const KeepErrno keep;
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

std::uint64_t clock_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000000;
}

void random_bytes(void* to, std::size_t count) {
  const KeepErrno keep;
  auto* const bytes = static_cast<unsigned char*>(to);
  std::size_t have = 0;
  while (have < count) {
    const long got = syscall(SYS_getrandom, bytes + have, count - have, GRND_NONBLOCK);
    if (got <= 0) {
      break;
    }
    have += static_cast<std::size_t>(got);
  }
  if (have == count) {
    return;
  }
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::uint64_t state = static_cast<std::uint64_t>(now.tv_nsec) << 32U ^
                        static_cast<std::uint64_t>(now.tv_sec) ^ reinterpret_cast<std::uintptr_t>(&now) ^
                        reinterpret_cast<std::uintptr_t>(&random_bytes) << 16U;
  for (; have < count; ++have) {
    state = (state ^ state >> 30U) * 0xbf58476d1ce4e5b9U;
    state = (state ^ state >> 27U) * 0x94d049bb133111ebU + 0x9e3779b97f4a7c15U;
    bytes[have] = static_cast<unsigned char>(state >> 56U);
  }
}

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  random_bytes(&seed, sizeof seed);
  return seed;
}

const char* environment_value(char** environment, const char* name) {
  if (environment == nullptr || getauxval(AT_SECURE) != 0) {
    return nullptr;
  }
  const std::size_t length = std::strlen(name);
  for (; *environment != nullptr; ++environment) {
    if (std::strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
      return *environment + length + 1;
    }
  }
  return nullptr;
}

void write_error(const char* text, std::size_t length) {
  const KeepErrno keep;
  while (length > 0) {
    // not write(), which is a cancellation point
    const long written = syscall(SYS_write, STDERR_FILENO, text, length);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written <= 0) {
      return;
    }
    text += written;
    length -= static_cast<std::size_t>(written);
  }
}

void abort_process() { std::abort(); }

// Forking

namespace {

// For this thread: the number of locks that it holds or is about to take, and of forks in which it
// keeps none. Signal handlers read both.
[[gnu::tls_model("initial-exec")]] constinit thread_local volatile unsigned locks_held = 0;
[[gnu::tls_model("initial-exec")]] constinit thread_local volatile unsigned unsafe_forks = 0;

constinit std::uintptr_t forker = 0;     // the thread that keeps the locks: the address of its `locks_held`
constinit unsigned forks = 0;            // nested forks of that thread
constinit bool keeps_file_list = false;  // that thread also keeps the list of open files

std::uintptr_t self() { return reinterpret_cast<std::uintptr_t>(&locks_held); }

// Returns false if another thread has been forking for too long.
bool become_forker() {
  const KeepErrno keep;
  for (int pauses = 0; pauses < Lock::kForkTimeoutS * 1000; ++pauses) {
    std::uintptr_t nobody = 0;
    if (__atomic_compare_exchange_n(&forker, &nobody, self(), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      return true;
    }
    constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 1000000};
    syscall(SYS_nanosleep, &kPause, nullptr);
  }
  return false;
}

}  // namespace

bool Forking::keeps_locks() { return __atomic_load_n(&forker, __ATOMIC_RELAXED) == self(); }

bool Forking::underway() { return unsafe_forks != 0 || keeps_locks(); }

bool Forking::begin() {
  const bool safe = locks_held == 0;
  locks_held = locks_held + 1;  // a fork in a signal handler must not interfere here
  const bool kept = safe && (keeps_locks() || become_forker());
  if (!kept) {
    unsafe_forks = unsafe_forks + 1;
  } else if (++forks == 1 && &_IO_list_lock != nullptr) {
    _IO_list_lock();
    keeps_file_list = true;
  }
  locks_held = locks_held - 1;
  return kept;
}

void Forking::leave() { __atomic_store_n(&forker, 0, __ATOMIC_RELEASE); }

bool Forking::end(bool child) {
  if (unsafe_forks != 0) {
    unsafe_forks = unsafe_forks - 1;
    if (child && !keeps_locks()) {
      forker = 0;  // the thread that kept the locks does not exist in the child
      forks = 0;
      keeps_file_list = false;
    }
    return false;
  }
  locks_held = locks_held + 1;
  const bool last = --forks == 0;
  if (keeps_file_list && child) {
    _IO_list_resetlock();
    keeps_file_list = false;
  } else if (keeps_file_list && last) {
    keeps_file_list = false;
    _IO_list_unlock();
  }
  if (last && child) {
    leave();
  }
  locks_held = locks_held - 1;
  return last;
}

bool Lock::try_lock(std::uint32_t seen, std::uint32_t wanted) {
  return __atomic_compare_exchange_n(&word_, &seen, wanted, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

void Lock::wake(std::uint32_t seen) {
  if ((seen & kWaited) != 0) {
    const KeepErrno keep;
    syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
}

void Lock::lock() {
  locks_held = locks_held + 1;
  if (try_lock(0, kHeld)) {
    return;
  }
  for (int tries = 0; tries < 100 && !Forking::keeps_locks(); ++tries) {  // locks are held only briefly
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");  // waits for about as long as x86's pause; `yield` does nothing
#endif
    if (__atomic_load_n(&word_, __ATOMIC_RELAXED) == 0 && try_lock(0, kHeld)) {
      return;
    }
  }
  const KeepErrno keep;
  for (;;) {
    const std::uint32_t seen = __atomic_load_n(&word_, __ATOMIC_RELAXED);
    if (seen == 0 || ((seen & kKept) != 0 && Forking::keeps_locks())) {
      if (try_lock(seen, kHeld | (seen == 0 ? kWaited : seen & kWaited))) {  // other threads may be waiting
        return;
      }
    } else if ((seen & kWaited) != 0 || try_lock(seen, seen | kWaited)) {
      constexpr timespec kKeptLockTimeout{.tv_sec = kForkTimeoutS, .tv_nsec = 0};
      const bool late = syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, seen | kWaited, &kKeptLockTimeout,
                                nullptr, 0) != 0 &&
                        errno == ETIMEDOUT;
      if (late && (seen & (kKept | kHeld)) == kKept && try_lock(seen | kWaited, kHeld | kWaited)) {
        return;
      }
    }
  }
}

bool Lock::lock_if_free() {
  locks_held = locks_held + 1;
  const bool taken = try_lock(0, kHeld);
  if (!taken) {
    locks_held = locks_held - 1;
  }
  return taken;
}

void Lock::unlock() {
  if (Forking::keeps_locks()) [[unlikely]] {
    __atomic_fetch_or(&word_, kKept, __ATOMIC_RELAXED);
    __atomic_fetch_and(&word_, ~kHeld, __ATOMIC_RELEASE);  // waiting threads continue to wait
  } else {
    wake(__atomic_exchange_n(&word_, 0, __ATOMIC_RELEASE));
  }
  locks_held = locks_held - 1;
}

void Lock::release_kept() {
  for (std::uint32_t seen = __atomic_load_n(&word_, __ATOMIC_RELAXED); (seen & kKept) != 0;) {
    if (__atomic_compare_exchange_n(&word_, &seen, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
      wake(seen);
      return;
    }
  }
}

void Lock::reset() { __atomic_store_n(&word_, Forking::keeps_locks() ? kKept : 0, __ATOMIC_RELEASE); }

}  // namespace heapwright::alloc::platform
