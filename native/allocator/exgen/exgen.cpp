// Defines libexgen: exgen as it ships, for programs with one thread, and safe with more.
// docs/design-notes/exgen.md has the measurements behind the constants.
#include "../entry/library.h"

namespace heapwright::alloc {

struct ExgenConfiguration {
  static constexpr const char* kName = "exgen";
  static constexpr std::size_t kClassesPerDoubling = 8;
  static constexpr std::size_t kCacheBytesPerClass = 16 * 1024;
  static constexpr std::size_t kCacheBlocksPerClass = 128;
  static constexpr bool kSecure = false;
  static constexpr bool kStartsSingleThreaded = true;
};

constinit Library<ExgenConfiguration> library;

}  // namespace heapwright::alloc

#include "../entry/operators.h"
#include "names.h"
