#include "codec.h"

#ifdef HEAPWRIGHT_ZSTD
#include <zstd.h>
#endif

namespace heapwright::trace {

#ifdef HEAPWRIGHT_ZSTD
namespace {
constexpr int kLevel = 3;  // 12 gains less than 5% and takes ten times as long
}  // namespace

Codec compress(std::string_view from, std::string& to) {
  to.resize(ZSTD_compressBound(from.size()));
  const std::size_t size = ZSTD_compress(to.data(), to.size(), from.data(), from.size(), kLevel);
  if (ZSTD_isError(size) != 0 || size >= from.size()) {
    to.assign(from);
    return Codec::kNone;
  }
  to.resize(size);
  return Codec::kZstd;
}
#else
Codec compress(std::string_view from, std::string& to) {
  to.assign(from);
  return Codec::kNone;
}
#endif

bool known(Codec codec) {
#ifdef HEAPWRIGHT_ZSTD
  return codec == Codec::kNone || codec == Codec::kZstd;
#else
  return codec == Codec::kNone;
#endif
}

bool decompress(Codec codec, std::string_view from, std::uint64_t size, std::string& to) {
  if (codec == Codec::kNone) {
    to.assign(from);
    return from.size() == size;
  }
#ifdef HEAPWRIGHT_ZSTD
  if (codec == Codec::kZstd) {
    to.resize(size);
    return ZSTD_decompress(to.data(), size, from.data(), from.size()) == size;
  }
#endif
  return false;
}

}  // namespace heapwright::trace
