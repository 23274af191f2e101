// Defines libexgen-secure: exgen with all protections of core/hardening.h. Its caches are short, so
// that a freed block does not stay the next to be reused for long.
#include "../entry/library.h"

namespace heapwright::alloc {

struct ExgenConfiguration {
  static constexpr const char* kName = "exgen-secure";
  static constexpr std::size_t kClassesPerDoubling = 8;
  static constexpr std::size_t kCacheBytesPerClass = 8 * 1024;
  static constexpr std::size_t kCacheBlocksPerClass = 64;
  static constexpr bool kSecure = true;
  static constexpr bool kStartsSingleThreaded = true;
};

constinit Library<ExgenConfiguration> library;

}  // namespace heapwright::alloc

#include "../entry/operators_hardened.h"
#include "names.h"
