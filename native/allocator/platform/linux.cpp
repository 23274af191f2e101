// Linux. See platform.h for what is promised.
#include <elf.h>
#include <linux/futex.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "platform.h"

namespace heapwright::alloc::platform {

namespace {

constexpr int kReadWrite = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0  // then the address is a hint, and what came of it is looked at
#endif

class KeepErrno {
 public:
  KeepErrno() : value_(errno) {}
  ~KeepErrno() { errno = value_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int value_;
};

void* succeeded(void* result) { return result == MAP_FAILED ? nullptr : result; }

}  // namespace

std::size_t page_size() {
  static constinit std::size_t size = 0;  // written twice by two threads: the same value
  if (size == 0) {
    size = getauxval(AT_PAGESZ);
  }
  return size;
}

void* map(std::size_t bytes) {
  const KeepErrno keep;
  return succeeded(mmap(nullptr, bytes, kReadWrite, kPrivate, -1, 0));
}

bool map_at(void* address, std::size_t bytes) {
#ifdef __SANITIZE_THREAD__
  return false;  // ThreadSanitizer knows its own places only, and would map address 0
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
  const KeepErrno keep;  // mprotect would leave them counted (vm.overcommit_memory=2)
  return mmap(address, bytes, PROT_NONE, kPrivate | MAP_FIXED, -1, 0) != MAP_FAILED;
}

bool unmap(void* address, std::size_t bytes) {
  const KeepErrno keep;
  if (munmap(address, bytes) == 0) {
    return true;
  }
  madvise(address, bytes, MADV_DONTNEED);
  return false;
}

void* remap(void* address, std::size_t bytes, std::size_t wanted) {
  const KeepErrno keep;
  return succeeded(mremap(address, bytes, wanted, MREMAP_MAYMOVE));
}

void purge(void* address, std::size_t bytes) {
  const KeepErrno keep;
  if (madvise(address, bytes, MADV_DONTNEED) != 0) {
    std::memset(address, 0, bytes);
  }
}

void forbid(void* address, std::size_t bytes) {
  const KeepErrno keep;
  mprotect(address, bytes, PROT_NONE);
}

void advise_huge_pages(void* address, std::size_t bytes, HugePages mode) {
  const KeepErrno keep;
  if (mode != HugePages::kAsSystem) {
    madvise(address, bytes, mode == HugePages::kNever ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  }
}

std::uint64_t clock_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000000;
}

std::uint64_t random_seed() {
  std::uint64_t seed = 0x9e3779b97f4a7c15U;
  const auto* const bytes = reinterpret_cast<const void*>(getauxval(AT_RANDOM));
  if (bytes != nullptr) {
    std::memcpy(&seed, bytes, sizeof seed);
  }
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
    const ssize_t written = write(STDERR_FILENO, text, length);
    if (written <= 0) {
      return;
    }
    text += written;
    length -= static_cast<std::size_t>(written);
  }
}

void abort_process() { std::abort(); }

void Lock::lock() {
  std::uint32_t seen = 0;
  if (__atomic_compare_exchange_n(&word_, &seen, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
    return;
  }
  const KeepErrno keep;
  for (int tries = 0; tries < 100; ++tries) {  // what is done under the lock is short
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
    seen = 0;
    if (__atomic_load_n(&word_, __ATOMIC_RELAXED) == 0 &&
        __atomic_compare_exchange_n(&word_, &seen, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
      return;
    }
  }
  while (__atomic_exchange_n(&word_, 2, __ATOMIC_ACQUIRE) != 0) {
    syscall(SYS_futex, &word_, FUTEX_WAIT_PRIVATE, 2, nullptr, nullptr, 0);
  }
}

void Lock::unlock() {
  if (__atomic_exchange_n(&word_, 0, __ATOMIC_RELEASE) == 2) {
    const KeepErrno keep;
    syscall(SYS_futex, &word_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }
}

void Lock::reset() { __atomic_store_n(&word_, 0, __ATOMIC_RELEASE); }

}  // namespace heapwright::alloc::platform
