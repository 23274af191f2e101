#include "settings.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "begin.h"
#include "sampling.h"
#include "system.h"

namespace heapwright::recorder {

const char* variable(const char* environment, std::size_t bytes, const char* name) {
  const std::size_t length = std::strlen(name);
  for (const char* at = environment; at < environment + bytes; at += std::strlen(at) + 1) {
    if (std::strncmp(at, name, length) == 0 && at[length] == '=') {
      return at + length + 1;
    }
  }
  return nullptr;
}

std::size_t append_settings(char* to, std::size_t room) {
  Dl_info own{};
  char path[4096];
  if (dladdr(static_cast<const void*>(&sampling), &own) == 0 || own.dli_fname == nullptr) {
    return 0;
  }
  const auto length = static_cast<std::size_t>(std::snprintf(path, sizeof(path), "%s", own.dli_fname));
  if (length >= sizeof(path) - 4 || length < 3 || std::strcmp(path + length - 3, ".so") != 0) {
    return 0;
  }
  std::memcpy(path + length - 3, ".conf", 6);
  const std::size_t bytes = sys::read_start(path, to, room);
  for (std::size_t i = 0; i < bytes; ++i) {
    to[i] = to[i] == '\n' ? '\0' : to[i];
  }
  return bytes;
}

namespace {

// Of a number of seconds; at most a century, 0 for anything else.
std::uint64_t nanoseconds(const char* text) {
  constexpr double kMaxSeconds = 3.2e9;
  const double seconds = std::strtod(text, nullptr);
  if (!(seconds > 0)) {
    return 0;
  }
  return static_cast<std::uint64_t>((seconds < kMaxSeconds ? seconds : kMaxSeconds) * 1e9);
}

}  // namespace

void read_sampling(const char* environment, std::size_t bytes) {
  const auto value = [&](const char* name) {
    const char* const text = variable(environment, bytes, name);
    return text == nullptr ? "" : text;
  };
  const std::uint64_t rate = std::strtoull(value(kSampleVariable), nullptr, 10);
  // With more, a rate at the top level would not fit.
  constexpr std::uint64_t kMaxRate = std::uint64_t{1} << (63 - kTopLevel);
  sampling.rate = rate == 0 ? 1 : rate < kMaxRate ? rate : kMaxRate;
  sampling.max_bytes = std::strtoull(value(kMaxSizeVariable), nullptr, 10);
  const char* const cost = value(kMaxCostVariable);
  sampling.max_percent = *cost == '\0' ? kDefaultPercent : std::strtoull(cost, nullptr, 10);
  sampling.after_ns = nanoseconds(value(kAfterVariable));
  sampling.for_ns = nanoseconds(value(kForVariable));
  sampling.window_signal = static_cast<int>(std::strtol(value(kWindowSignalVariable), nullptr, 10));
  sampling.windowed = sampling.after_ns != 0 || sampling.for_ns != 0 || sampling.window_signal != 0;
}

}  // namespace heapwright::recorder
