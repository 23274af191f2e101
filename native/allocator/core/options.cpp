// Parses the options of an allocator's environment variable. See options.h.
#include "options.h"

#include <cstring>

#include "message.h"

// The string of options that the program has built in, if any.
extern "C" [[gnu::weak, gnu::visibility("default")]] const char heapwright_built_in_options[];

namespace heapwright::alloc {

namespace {

struct Text {
  const char* begin;
  std::size_t length;
  [[nodiscard]] bool is(const char* word) const {
    return std::strlen(word) == length && std::memcmp(begin, word, length) == 0;
  }
};

// Reads a number with an optional binary unit: '4096', '64m', '1g'.
bool read_number(Text text, std::size_t& result) {
  std::size_t value = 0;
  std::size_t i = 0;
  for (; i < text.length && text.begin[i] >= '0' && text.begin[i] <= '9'; ++i) {
    const auto digit = static_cast<std::size_t>(text.begin[i] - '0');
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value)) {
      return false;
    }
  }
  if (i == 0) {
    return false;
  }
  if (i + 1 == text.length) {
    const char* const found = std::strchr("kmgt", text.begin[i] | 0x20);
    if (found == nullptr || *found == '\0') {
      return false;
    }
    const auto shift = 10 * (1 + (std::strchr("kmgt", *found) - "kmgt"));
    if (value > SIZE_MAX >> shift) {
      return false;
    }
    value <<= shift;
  } else if (i != text.length) {
    return false;
  }
  result = value;
  return true;
}

bool read_positive(Text text, std::size_t& result) {
  std::size_t value = 0;
  if (!read_number(text, value) || value == 0) {
    return false;
  }
  result = value;
  return true;
}

// Reads one of a few words; `result` is its index.
bool read_word(Text text, const char* const* words, std::size_t& result) {
  for (std::size_t i = 0; words[i] != nullptr; ++i) {
    if (text.is(words[i])) {
      result = i;
      return true;
    }
  }
  return false;
}

bool set(Options& options, Text key, Text value) {
  static constexpr const char* kHuge[] = {"auto", "never", "always", nullptr};
  static constexpr const char* kError[] = {"abort", "report", nullptr};
  static constexpr const char* kMismatch[] = {"abort", "report", "ignore", nullptr};
  static constexpr const char* kSwitch[] = {"0", "1", nullptr};
  std::size_t number = 0;
  if (key.is("limit")) {
    return read_positive(value, options.limit);
  }
  if (key.is("keep")) {
    return read_number(value, options.keep);
  }
  if (key.is("cache") || key.is("front")) {  // `front` is the older name
    return read_positive(value, options.cache_bytes_per_class);
  }
  if (key.is("purge_delay")) {
    if (!read_number(value, number)) {
      return false;
    }
    options.purge_delay = number;
    return true;
  }
  if (key.is("quarantine")) {
    return read_number(value, options.quarantine);
  }
  if (key.is("wipe") && read_word(value, kSwitch, number)) {
    options.wipe = number == 1;
    return true;
  }
  if (key.is("on_mismatch") && read_word(value, kMismatch, number)) {
    options.mismatch = static_cast<Options::Mismatch>(number);
    return true;
  }
  if (key.is("huge_pages") && read_word(value, kHuge, number)) {
    options.huge_pages = static_cast<Options::Huge>(number);
    return true;
  }
  if (key.is("on_error") && read_word(value, kError, number)) {
    options.report = number == 1;
    return true;
  }
  if (key.is("stats") && read_word(value, kSwitch, number)) {
    options.statistics = number == 1;
    return true;
  }
  return false;
}

}  // namespace

const char* built_in_options() { return heapwright_built_in_options; }

Options read_options(const char* variable, const char* text, Options options) {
  while (text != nullptr && *text != '\0') {
    const std::size_t length = std::strcspn(text, ",");
    const auto* const equals = static_cast<const char*>(std::memchr(text, '=', length));
    const auto before = equals == nullptr ? length : static_cast<std::size_t>(equals - text);
    const Text value = equals == nullptr ? Text{"", 0} : Text{equals + 1, length - before - 1};
    if (length > 0 && !set(options, {text, before}, value)) {
      Message message;
      message << variable << ": not understood and ignored: '";
      message.add(text, length)
          << "'; known are limit=SIZE keep=SIZE purge_delay=MS cache=SIZE "
             "huge_pages=auto|never|always on_error=abort|report "
             "stats=0|1; hardened: quarantine=SIZE wipe=0|1 on_mismatch=abort|report|ignore\n";
      message.write();
    }
    text += length + (text[length] == ',' ? 1 : 0);
  }
  return options;
}

}  // namespace heapwright::alloc
