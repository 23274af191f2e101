// Defines libreaper: reaper as it ships, for programs with threads.
#include "../entry/library.h"

namespace heapwright::alloc {

struct ReaperConfiguration {
  static constexpr const char* kName = "reaper";
  static constexpr std::size_t kClassesPerDoubling = 8;
  static constexpr std::size_t kCacheBytesPerClass = 16 * 1024;
  static constexpr std::size_t kCacheBlocksPerClass = 128;
  static constexpr bool kSecure = false;
  static constexpr bool kStartsSingleThreaded = false;
};

constinit Library<ReaperConfiguration> library;

}  // namespace heapwright::alloc

#include "../entry/operators.h"
#include "names.h"
