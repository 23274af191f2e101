// Composes a line for stderr without malloc or stdio. A line that is too long is cut but still
// ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../platform/platform.h"
#include "inlining.h"

namespace heapwright::alloc {

class Message {
 public:
  HEAPWRIGHT_COLD Message& operator<<(const char* text) {
    while (*text != '\0') {
      put(*text++);
    }
    return *this;
  }
  Message& operator<<(std::size_t number) { return digits(number, 10); }
  Message& operator<<(const void* address) {
    *this << "0x";
    return digits(reinterpret_cast<std::uintptr_t>(address), 16);
  }
  // Adds `length` characters of foreign text, which need not be terminated. Control characters
  // become '?', so that a terminal obeys none.
  HEAPWRIGHT_COLD Message& add(const char* text, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) {
      put(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
    }
    return *this;
  }
  void write() const { platform::write_error(text_, length_); }

 private:
  void put(char c) {
    if (length_ < sizeof text_) {
      text_[length_++] = c;
    } else {
      text_[sizeof text_ - 1] = '\n';
    }
  }
  HEAPWRIGHT_COLD Message& digits(std::size_t number, std::size_t base) {
    char reversed[20];
    std::size_t count = 0;
    do {
      reversed[count++] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number != 0);
    while (count > 0) {
      put(reversed[--count]);
    }
    return *this;
  }

  char text_[512];
  std::size_t length_ = 0;
};

}  // namespace heapwright::alloc
