// Makes a raw recording of a fuzzer's bytes: its header and its blocks are where a reader looks for
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "input.h"
#include "raw_format/format.h"

namespace heapwright::fuzz {

// Makes a raw file of an input. Header and blocks have 64 KiB each, mostly zeroes, so an input
// holds only the parts that are not zero, each behind its length (2 bytes):
//   the header from its beginning, from its table of phases, and from its fields of a sample;
//   then for each block its first bytes
// The last block is cut off behind its part, unless an empty part follows.
inline std::string unfold(Input in) {
  std::string file;
  const auto put_part = [&](std::size_t at) {
    std::string part(in.number<std::uint16_t>(), '\0');
    for (std::size_t i = 0; i < part.size() && !in.empty(); ++i) {
      part[i] = static_cast<char>(in.byte());
    }
    file.resize(std::max(file.size(), at + part.size()));
    file.replace(at, part.size(), part);
  };
  for (const std::size_t at :
       {std::size_t{0}, offsetof(raw::FileHeader, phase), offsetof(raw::FileHeader, sample)}) {
    if (!in.empty()) {
      put_part(at);
    }
  }
  for (std::size_t begin = raw::kBlockBytes; !in.empty() && begin <= 64 * raw::kBlockBytes;
       begin += raw::kBlockBytes) {
    file.resize(begin);
    put_part(begin);
  }
  // Sets fields that a fuzzer cannot guess, or whose errors it would find again and again.
  const auto put = [&file](std::size_t at, auto value) {
    if (file.size() >= at + sizeof(value)) {
      std::memcpy(file.data() + at, &value, sizeof(value));
    }
  };
  put(offsetof(raw::FileHeader, magic), raw::kFileMagic);
  put(offsetof(raw::FileHeader, version), raw::kVersion);
  put(offsetof(raw::FileHeader, block_bytes), static_cast<std::uint32_t>(raw::kBlockBytes));
  for (std::size_t at = raw::kBlockBytes; at < file.size(); at += raw::kBlockBytes) {
    put(at, raw::kBlockMagic);
  }
  return file;
}

}  // namespace heapwright::fuzz
