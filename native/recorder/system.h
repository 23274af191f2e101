// System calls as the recorder needs them: they leave errno alone where it is said, are no cancellation points (malloc is none),
// and allocate nothing.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace heapwright::recorder::sys {

// The program's errno outlives what the recorder does.
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

// The first bytes of a file, zero-terminated; the number read, 0 for none.
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

// Resident memory of this process in bytes, 0 where it cannot be told.
std::uint64_t resident_bytes();

// Nanoseconds this thread has been ready to run while others ran; 0 where the kernel does not say.
std::uint64_t waited_ns();
// Makes room on the disk, so that no page of it is missing when it is written to through a mapping. 0 or errno.
int reserve(int file, std::uint64_t where, std::uint64_t bytes);

}  // namespace heapwright::recorder::sys
