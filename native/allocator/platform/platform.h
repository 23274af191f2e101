// What the allocators need of the operating system: memory, a clock, a line on stderr. The only room with
// system calls, conditional compilation and inline assembly.
//
// Nothing here allocates, throws or depends on a constructor having run: malloc is called before any has.
#pragma once

#include <cstddef>
#include <cstdint>

// glibc ≥ 2.32 clears it before the first other thread starts; weak for C libraries without it.
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): a declaration
extern "C" __attribute__((weak)) char __libc_single_threaded;

namespace heapwright::alloc::platform {

// The run-time page size: 4 KiB here, 16 or 64 KiB on some ARM machines.
std::size_t page_size();

// Readable and writable zeroed pages anywhere, or nullptr. errno is left alone, here and below.
void* map(std::size_t bytes);
// The same at this very address, or false: nothing that is mapped there already is replaced.
bool map_at(void* address, std::size_t bytes);
// Address space without memory, anywhere, for commit() to fill; nullptr if there is none.
void* reserve(std::size_t bytes);
// Makes part of a reservation readable and writable.
bool commit(void* address, std::size_t bytes);
// False where the addresses are still taken: taking a part out of a mapping makes one more, and there may be too many. The
// memory is given back all the same.
bool unmap(void* address, std::size_t bytes);
// Another size for a mapping, which may move; nullptr and no change if there is no room.
void* remap(void* address, std::size_t bytes, std::size_t wanted);
// Gives the pages back; the addresses stay and read as zero, also where nothing can be given back: of a process that has
// locked its memory.
void purge(void* address, std::size_t bytes);
// Committed pages become reserved ones again: they hold nothing, and count nowhere. False: they are as they were, or, if
// the kernel could not finish, nobody's.
bool release(void* address, std::size_t bytes);
// No access to these pages from now on: a guard.
void protect(void* address, std::size_t bytes);

enum class HugePages : std::uint8_t { kAsSystem, kNever, kAlways };
void advise_huge_pages(void* address, std::size_t bytes, HugePages mode);

// Makes the compiler work out anew what it knows of a value.
template <class T>
[[gnu::always_inline]] inline void hide_from_optimizer(T& value) {
  asm("" : "+r"(value));
}

// Milliseconds on a monotonic clock that need not be finer than some milliseconds.
std::uint64_t clock_ms();

// Bytes that nobody can foresee, from the kernel and from nowhere else in the process: AT_RANDOM's are the stack
// protector's and the C library's. Where the kernel gives none (before Linux 3.17, under a filter), addresses and the
// clock have to do.
void random_bytes(void* to, std::size_t count);
std::uint64_t random_seed();

// The value of an environment variable, or nullptr; always nullptr in a setuid program. `environment` is what
// the constructor was given: libc's own may not be set yet.
const char* environment_value(char** environment, const char* name);

// Writes to stderr, without a buffer; what cannot be written is lost.
void write_error(const char* text, std::size_t length);
[[noreturn]] void abort_process();

// One thread so far, as far as the C library knows. It cannot know of threads made by the bare system call.
inline bool single_threaded() { return &__libc_single_threaded == nullptr || __libc_single_threaded != 0; }

// The thread that forks. It keeps every lock from before the fork until after it, so that the child finds nothing half
// done. Meanwhile others run that know nothing of that:
//
// - Its own handlers (pthread_atfork), which may allocate: the locks that it keeps it may lock again.
// - Signal handlers, which may fork: a fork inside a fork keeps what is kept. If the handler interrupted code that holds
//   a lock, nothing is kept: waiting for the lock would be for ever. The child may then call async-signal-safe functions only,
//   as POSIX has it.
// - Threads that wait for a lock while they hold one of the C library's or the program's that the fork waits for. The list
//   of open files, the commonest, is locked before ours. For the others a kept lock is taken away after kForkTimeoutS: the
//   child of that fork may find something half done, but nobody waits for ever.
//
// One thread at a time: another that forks waits. In a process with one thread there is nothing to keep.
class Forking {
 public:
  // False: nothing must be kept; end() is called all the same.
  static bool begin();
  // Whether this thread is between begin() and end().
  static bool underway();
  // Whether it keeps locks.
  static bool keeps_locks();
  // True: the outermost fork has ended. In the parent the locks are to be let go then, and leave() called: another thread
  // that forks would take a kept lock for its own.
  static bool end(bool child);
  static void leave();
};

// A lock that sleeps in the kernel when it has to wait. Constant-initialised.
class Lock {
 public:
  static constexpr int kForkTimeoutS = 10;  // the longest forks, of a terabyte, take some seconds

  void lock();
  void unlock();
  // The thread that forks keeps it from now on, and lets it go in the parent.
  void keep_across_fork() {
    lock();
    unlock();
  }
  void release_kept();
  // In the child nobody else holds it.
  void reset();

 private:
  static constexpr std::uint32_t kHeld = 1;
  static constexpr std::uint32_t kWaited = 2;  // somebody sleeps, or may
  static constexpr std::uint32_t kKept = 4;    // by the thread that forks
  bool try_lock(std::uint32_t seen, std::uint32_t wanted);
  void wake(std::uint32_t seen);

  std::uint32_t word_ = 0;  // 0: free
};

}  // namespace heapwright::alloc::platform
