// Wraps the system calls that the recorder makes. They allocate nothing. Like malloc, they are no
// cancellation points. They set errno; KeepErrno restores it.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace heapwright::recorder::sys {

// Restores errno at the end of a scope, so that the program does not see the recorder's.
class KeepErrno {
 public:
  KeepErrno() : kept_(errno) {}
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;
  ~KeepErrno() { errno = kept_; }

 private:
  int kept_;
};

inline int open_file(const char* path, int flags, unsigned mode = 0) {
  return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode));
}
inline void close_file(int file) { syscall(SYS_close, file); }
inline long read_file(int file, void* buffer, std::size_t bytes) {
  return syscall(SYS_read, file, buffer, bytes);
}
inline long write_file(int file, const void* buffer, std::size_t bytes) {
  return syscall(SYS_write, file, buffer, bytes);
}
inline long write_at(int file, const void* buffer, std::size_t bytes, std::uint64_t where) {
  return syscall(SYS_pwrite64, file, buffer, bytes, where);
}
inline int process_id() { return static_cast<int>(syscall(SYS_getpid)); }

// Reads the beginning of a file.
//
// path    the file
// buffer  gets the bytes and a zero after them
// room    bytes in the buffer
//
// Returns the number of bytes read, 0 if the file cannot be read.
inline std::size_t read_start(const char* path, char* buffer, std::size_t room) {
  const int file = open_file(path, O_RDONLY);
  std::size_t got = 0;
  if (file >= 0) {
    while (got + 1 < room) {
      const long more = read_file(file, buffer + got, room - 1 - got);
      if (more <= 0) {
        break;
      }
      got += static_cast<std::size_t>(more);
    }
    close_file(file);
  }
  buffer[got] = 0;
  return got;
}

struct Resident {
  std::uint64_t all = 0;    // bytes, 0 if it is not known
  std::uint64_t files = 0;  // bytes of it in files and shared memory
};

// Returns the resident memory of this process.
Resident resident_memory();

// Returns when this process started, in clock ticks since the machine did; 0 if it is not known.
std::uint64_t process_start();

// Returns how many nanoseconds this thread has been ready to run while others ran; 0 if the kernel
// does not say.
std::uint64_t waited_ns();
// Allocates disk space for a part of a file, so that writing to it through a mapping cannot fail
// with SIGBUS on a full disk.
//
// file   a descriptor
// where  the offset of the part in bytes
// bytes  its length
//
// Returns 0 or an errno.
int reserve(int file, std::uint64_t where, std::uint64_t bytes);

}  // namespace heapwright::recorder::sys
