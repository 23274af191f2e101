// Defines libreaper-secure: reaper with all protections of core/hardening.h.
#include "../entry/library.h"

namespace heapwright::alloc {

struct ReaperConfiguration {
  static constexpr const char* kName = "reaper-secure";
  static constexpr std::size_t kClassesPerDoubling = 8;
  static constexpr std::size_t kCacheBytesPerClass = 8 * 1024;
  static constexpr std::size_t kCacheBlocksPerClass = 64;
  static constexpr bool kSecure = true;
  static constexpr bool kStartsSingleThreaded = false;
};

constinit Library<ReaperConfiguration> library;

}  // namespace heapwright::alloc

#include "../entry/operators_hardened.h"
#include "names.h"
