// libexgen: exgen as it ships. The constants are measured: docs/design-notes/exgen.md.
#include <cstddef>

namespace heapwright::alloc {

struct ExgenConfiguration {
  static constexpr const char* kName = "exgen";
  static constexpr std::size_t kClassesPerDoubling = 8;
  static constexpr std::size_t kFrontBytes = 16 * 1024;
  static constexpr std::size_t kFrontBlocks = 128;
  static constexpr bool kSecure = false;
};

}  // namespace heapwright::alloc

#include "library.h"
