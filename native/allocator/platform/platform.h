// Declares the services of the operating system for the allocators: memory, a clock, locks, a line
// on stderr.
//
// Only this folder contains system calls, conditional compilation and inline assembly. Nothing here
// allocates, throws or needs a constructor to have run: malloc is called before any constructor. No
// function changes errno.
#pragma once

#include <cstddef>
#include <cstdint>

// glibc ≥ 2.32 clears it before the second thread starts; weak for C libraries without it.
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers,readability-redundant-declaration): a declaration
extern "C" __attribute__((weak)) char __libc_single_threaded;

namespace heapwright::alloc::platform {

// The run-time page size: 4 KiB here, 16 or 64 KiB on some ARM machines.
extern constinit std::size_t known_page_size;  // 0: nobody has asked yet
std::size_t ask_page_size();
inline std::size_t page_size() {
  const std::size_t known = __atomic_load_n(&known_page_size, __ATOMIC_RELAXED);
  return known != 0 ? known : ask_page_size();
}

// Maps readable, writable, zeroed pages anywhere; nullptr if there are none.
void* map(std::size_t bytes);
// Maps pages at exactly this address. Returns false if that fails; an existing mapping is never
// replaced.
bool map_at(void* address, std::size_t bytes);
// Reserves address space without memory, for commit() to fill; nullptr if there is none.
void* reserve(std::size_t bytes);
// Makes part of a reservation readable and writable.
bool commit(void* address, std::size_t bytes);
// Unmaps pages. Returns false if the addresses stay mapped: unmapping the middle of a mapping makes
// one mapping more, and the kernel limits their number. The pages are purged in any case.
bool unmap(void* address, std::size_t bytes);
// Changes a mapping's size from `bytes` to `wanted`; it may move. Returns nullptr, without a
// change, if there is no room.
void* remap(void* address, std::size_t bytes, std::size_t wanted);
// Purges pages: the kernel takes the memory, the addresses stay and read as zero. They also read as
// zero if the process has locked its memory, which Linux before 5.18 does not purge.
void purge(void* address, std::size_t bytes);
// Decommits pages: they become reserved again, hold nothing and count nowhere. Returns false if
// they are unchanged or, when the kernel could not finish, unmapped.
bool release(void* address, std::size_t bytes);
// Makes memory read as zero, from an address of a page on. Fills the pages that are in memory,
// which takes a fraction of the time of page faults, and leaves the others untouched.
void clear(void* address, std::size_t bytes);
// Makes pages inaccessible: a guard. Returns false if the kernel refuses (vm.max_map_count).
bool protect(void* address, std::size_t bytes);

enum class HugePageMode : std::uint8_t { kAuto, kNever, kAlways };
void advise_huge_pages(void* address, std::size_t bytes, HugePageMode mode);
// Replaces the pages of an aligned stretch by huge ones, with their contents (Linux 6.1). Returns
// false if the kernel did not.
bool collapse(void* address, std::size_t bytes);
// Counts the pages that are in memory; 0 if the kernel does not tell. At most 2 MiB.
std::size_t resident_pages(void* address, std::size_t bytes);

// Milliseconds of a monotonic clock, with a resolution of some milliseconds.
std::uint64_t clock_ms();
// CPU time of the calling thread in microseconds; 0 if the system does not tell.
std::uint64_t cpu_us();

// Orders memory accesses of all threads of the process: when it returns true, each other thread has
// executed a full memory barrier since the call began. So a thread that only its compiler keeps from
// reordering a store and a later load behaves towards the caller as if it had executed that barrier
// between them. Call it only after may_order_all_threads() has returned true. Returns false if the
// kernel refuses now: under a seccomp filter, for example.
bool order_all_threads();
// Asks the kernel to allow that, and returns whether it can (from Linux 4.14 on) and has never refused.
// Children of a fork inherit it. If there are threads already, the first call takes some 10 ms.
bool may_order_all_threads();

// Fills memory with unpredictable bytes from the kernel. They are not AT_RANDOM's, which the stack
// protector and the C library use. Where the kernel gives none (before Linux 3.17, under a seccomp
// filter), they are derived from addresses and the clock.
void random_bytes(void* to, std::size_t count);
std::uint64_t random_seed();

// Returns the value of an environment variable, or nullptr; always nullptr in a setuid program.
// `environment` is the constructor's argument, because libc's own variable may not be set yet.
const char* environment_value(char** environment, const char* name);

// Writes to stderr without a buffer. Errors are ignored.
void write_error(const char* text, std::size_t length);
[[noreturn]] void abort_process();

// Whether the process has had one thread so far, as far as the C library says. It does not know of
// threads made by a bare system call. A C library that does not say makes this true, so a lock asks
// may_have_threads().
inline bool single_threaded() { return &__libc_single_threaded == nullptr || __libc_single_threaded != 0; }
// Whether there may be more threads than one. musl and glibc before 2.32 do not say.
//
// has_started_threads  whether the allocator knows of one
inline bool may_have_threads(bool has_started_threads) {
  return &__libc_single_threaded == nullptr ? has_started_threads : __libc_single_threaded == 0;
}

// Forking: the forking thread keeps every lock from before the fork until after it, so that the
// child finds no data half changed. Meanwhile other code runs that does not know this:
//
// - The thread's own fork handlers (pthread_atfork) may allocate: it may lock the locks that it
//   keeps again.
// - Signal handlers may fork. A fork inside a fork keeps the same locks. If the handler interrupted
//   code that holds a lock, this fork keeps none, because waiting for the lock would never end. The
//   child may then call only async-signal-safe functions, as POSIX requires.
// - A thread may wait for a kept lock while it holds a lock of the C library or of the program that
//   the fork waits for. The most common of these, the lock of the list of open files, is taken
//   before ours. For the others, the waiting thread takes the kept lock away after kForkTimeoutS.
//   The child of that fork may then find data half changed, but no thread waits for ever.
//
// One thread forks at a time; others wait. A process with one thread keeps no locks.
class Forking {
 public:
  // Returns whether locks must be kept. end() is called in either case.
  static bool begin();
  // Whether this thread is between begin() and end().
  static bool underway();
  // Whether this thread keeps locks.
  static bool keeps_locks();
  // Returns true if the outermost fork has ended. The parent must then release the locks and call
  // leave(), in this order: a next forking thread would take a kept lock for its own.
  static bool end(bool child);
  static void leave();
};

// A lock on which waiting threads sleep in the kernel. Constant-initialised.
class Lock {
 public:
  static constexpr int kForkTimeoutS = 10;  // the longest forks, of a terabyte, take some seconds

  void lock();
  // Takes the lock unless a thread holds it. Returns whether it did.
  bool lock_if_free();
  void unlock();
  // The forking thread keeps the lock from now on, and calls release_kept() in the parent.
  void keep_across_fork() {
    lock();
    unlock();
  }
  void release_kept();
  // In the child of a fork: no other thread holds the lock.
  void reset();

 private:
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kWaited = 2;  // a thread sleeps, or may sleep
  static constexpr std::uint32_t kKept = 4;    // kept by the forking thread
  bool try_lock(std::uint32_t seen, std::uint32_t wanted);
  void wake(std::uint32_t seen);

  std::uint32_t word_ = 0;  // 0: free
};

}  // namespace heapwright::alloc::platform
