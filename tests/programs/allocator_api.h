// Defines the rows of allocator_api and the text of their answers.
#pragma once

#include <malloc.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace heapwright::api {

// Builds one line of text without malloc.
class Answer {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char* format, ...) {
    va_list values;
    va_start(values, format);
    const int more = std::vsnprintf(text_ + used_, sizeof text_ - used_, format, values);
    va_end(values);
    used_ += more > 0 ? static_cast<std::size_t>(more) : 0;
    used_ = used_ < sizeof text_ ? used_ : sizeof text_ - 1;
  }
  [[nodiscard]] const char* text() const { return text_; }

 private:
  char text_[256] = {};
  std::size_t used_ = 0;
};

struct Row {
  const char* name;
  void (*run)(Answer&);
};

constexpr std::size_t kGiB = std::size_t{1} << 30U;
constexpr int kKept = ENOTTY;  // errno is set to this before a call, because no allocator sets it

inline const char* errno_name(int number) {
  switch (number) {
    case 0:
      return "0";
    case kKept:
      return "kept";
    case ENOMEM:
      return "ENOMEM";
    case EINVAL:
      return "EINVAL";
    default:
      return "other";
  }
}
inline const char* errno_name() { return errno_name(errno); }

inline bool aligned(const void* block, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(block) % alignment == 0;
}

}  // namespace heapwright::api
