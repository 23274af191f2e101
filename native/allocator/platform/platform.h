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
void forbid(void* address, std::size_t bytes);

enum class HugePages : std::uint8_t { kAsSystem, kNever, kAlways };
void advise_huge_pages(void* address, std::size_t bytes, HugePages mode);

// Makes the compiler work out anew what it knows of a value.
template <class T>
[[gnu::always_inline]] inline void forget(T& value) {
  asm("" : "+r"(value));
}

// Milliseconds on a monotonic clock that need not be finer than some milliseconds.
std::uint64_t clock_ms();

// Something that differs from run to run, as far as the kernel randomises addresses.
std::uint64_t random_seed();

// The value of an environment variable, or nullptr; always nullptr in a setuid program. `environment` is what
// the constructor was given: libc's own may not be set yet.
const char* environment_value(char** environment, const char* name);

// Writes to stderr, without a buffer; what cannot be written is lost.
void write_error(const char* text, std::size_t length);
[[noreturn]] void abort_process();

// One thread so far, as far as the C library knows. It cannot know of threads made by the bare system call.
inline bool single_threaded() { return &__libc_single_threaded == nullptr || __libc_single_threaded != 0; }

// A lock that sleeps in the kernel when it has to wait. Constant-initialised.
class Lock {
 public:
  void lock();
  void unlock();
  // For the child of a fork: there is nobody left who could hold it.
  void reset();

 private:
  std::uint32_t word_ = 0;  // 0 free, 1 held, 2 held and waited for
};

}  // namespace heapwright::alloc::platform
