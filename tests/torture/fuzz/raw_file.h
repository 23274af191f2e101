// Makes a raw recording of a fuzzer's bytes: its header and its blocks are where a reader looks for
// them.
#pragma once

#include <cstddef>
#include <cstring>
#include <string>

#include "input.h"
#include "raw_format/format.h"

namespace heapwright::fuzz {

// Makes a raw file of an input. Header and blocks have 64 KiB each, mostly zeroes, so an input
// holds only their first bytes:
//   the length of the header's part (2 bytes) and that part, then for each block a length (2 bytes) and its part
inline std::string unfold(Input in) {
  std::string file;
  while (!in.empty()) {
    const std::size_t length = in.number<std::uint16_t>();
    const std::size_t begin = file.size();
    for (std::size_t i = 0; i < length && !in.empty(); ++i) {
      file.push_back(static_cast<char>(in.byte()));
    }
    if (!in.empty()) {
      file.resize(begin + raw::kBlockBytes);
    }
    if (file.size() > 64 * raw::kBlockBytes) {
      break;
    }
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
