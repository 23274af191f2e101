// Helpers of the harnesses: read a fuzzer's bytes as choices or as a file with a path, and report a
// broken promise.
//
// A harness is one `LLVMFuzzerTestOneInput`. clang links it with libFuzzer. Other compilers link it
// with feed.cpp, whose `main` feeds it files. So every `make test` runs the corpora, with all
// inputs that ever broke something.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace heapwright::fuzz {

// Prints one line on a broken promise and aborts. Sanitizers and libFuzzer save the input of an
// abort.
//
//   what        the promise
//   file, line  its place in the source
[[noreturn]] inline void broken(const char* what, const char* file, int line) {
  (void)std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  std::abort();
}
#define PROMISE(what) ((what) ? (void)0 : ::heapwright::fuzz::broken(#what, __FILE__, __LINE__))

// Takes bytes off the front of an input; after the end come zeroes.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  bool empty() const { return at_ == end_; }
  std::uint8_t byte() { return empty() ? std::uint8_t{0} : *at_++; }
  template <class T>
  T number() {
    T value{};
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(byte()) << (8 * i));
    }
    return value;
  }
  // Returns a number that is mostly small, and sometimes of any size.
  std::uint64_t any() {
    const unsigned kind = byte();
    if (kind < 0x80) {
      return kind;
    }
    return kind < 0xC0   ? number<std::uint16_t>()
           : kind < 0xF0 ? number<std::uint32_t>()
                         : number<std::uint64_t>();
  }
  std::string_view rest() {
    return {reinterpret_cast<const char*>(at_), static_cast<std::size_t>(end_ - at_)};
  }

 private:
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

// A file in memory that has a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    for (std::size_t done = 0; done < content.size();) {
      const ssize_t more = ::write(file_, content.data() + done, content.size() - done);
      if (more <= 0) {
        std::abort();
      }
      done += static_cast<std::size_t>(more);
    }
    path_ = "/proc/self/fd/" + std::to_string(file_);
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() { ::close(file_); }
  const std::string& path() const { return path_; }

 private:
  int file_;
  std::string path_;
};

// Returns a private folder of this process for files that need a name, in memory if possible.
inline const std::string& scratch() {
  static const std::string kPath = [] {
    std::string name =
        ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/heapwright-fuzz-XXXXXX" : "/tmp/heapwright-fuzz-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      std::abort();
    }
    static std::string kept;
    kept = name;
    (void)std::atexit([] { (void)::rmdir(kept.c_str()); });
    return name;
  }();
  return kPath;
}

}  // namespace heapwright::fuzz
