// Maps a file into memory for reading.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace heapwright::trace {

class Mapped {
 public:
  bool open(const std::string& path, std::string& error) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat status{};
    if (file < 0 || ::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
      error = path + ": " + (file < 0 ? std::strerror(errno) : "not a file");
      if (file >= 0) {
        ::close(file);
      }
      return false;
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
    if (size_ > 0) {
      void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
      data_ = at == MAP_FAILED ? nullptr : static_cast<const unsigned char*>(at);
    }
    ::close(file);
    if (size_ > 0 && data_ == nullptr) {
      error = path + ": cannot be mapped";
      return false;
    }
    return true;
  }
  Mapped() = default;
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() {
    if (data_ != nullptr) {
      ::munmap(const_cast<unsigned char*>(data_), size_);
    }
  }
  std::uint64_t size() const { return size_; }
  unsigned char operator[](std::uint64_t at) const { return data_[at]; }

 private:
  const unsigned char* data_ = nullptr;
  std::uint64_t size_ = 0;
};

}  // namespace heapwright::trace
