// What the harnesses share: a fuzzer's bytes as choices, as a file with a path, and a broken promise.
//
// A harness is one `LLVMFuzzerTestOneInput`. clang links it with libFuzzer; any other compiler with feed.cpp, whose `main`
// feeds it files: so the corpora and all that ever broke something run in every `make test`.
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

// A promise is broken: one line, and the end. Sanitizers and libFuzzer keep the input of an abort.
[[noreturn]] inline void broken(const char* what, const char* file, int line) {
  (void)std::fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  std::abort();
}
#define PROMISE(what) ((what) ? (void)0 : ::heapwright::fuzz::broken(#what, __FILE__, __LINE__))

// Bytes taken off the front; zeroes behind the end.
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
  // Mostly small, now and then of any size.
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

// A folder of this process's own for what must be written under a name, in memory if there is such a place.
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
