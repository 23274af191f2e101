// Compression of a column: zstd where heapwright was built with it, else none. A file says of each column which it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heapwright::trace {

enum class Codec : std::uint8_t { kNone = 0, kZstd = 1 };

// The shorter of the two forms, appended to nothing: `to` is replaced.
Codec compress(std::string_view from, std::string& to);

// False where the bytes are not `size` bytes compressed by this codec, or this build cannot undo it; `to` is replaced.
bool decompress(Codec codec, std::string_view from, std::uint64_t size, std::string& to);

// Whether this build knows the codec.
bool known(Codec codec);

}  // namespace heapwright::trace
