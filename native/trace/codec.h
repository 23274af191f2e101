// Compresses a column: with zstd if heapwright was built with it, else not at all. The file names
// the codec of each column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heapwright::trace {

enum class Codec : std::uint8_t { kNone = 0, kZstd = 1 };

// Replaces `to` by the compressed bytes, or by `from` itself if that is shorter. Returns which it
// is.
Codec compress(std::string_view from, std::string& to);

// Decompresses a column.
//
// codec  how it is compressed
// from   the compressed bytes
// size   the number of bytes before compression
// to     is replaced by them
//
// Returns false if the bytes are not valid, or this build lacks the codec.
bool decompress(Codec codec, std::string_view from, std::uint64_t size, std::string& to);

// Returns whether this build has the codec.
bool known(Codec codec);

}  // namespace heapwright::trace
