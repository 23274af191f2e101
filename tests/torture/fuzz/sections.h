// Makes a packed file of a fuzzer's bytes that differs from a valid one in its contents only.
#pragma once

#include <string>
#include <string_view>

#include "input.h"
#include "trace/bytes.h"
#include "trace/packed_format.h"

namespace heapwright::fuzz {

// Corrects the checksums of all sections, because a fuzzer cannot guess a checksum.
inline std::string mended(std::string_view given) {
  std::string file(trace::kPackedMagic);
  trace::put_fixed(file, trace::kPackedVersion);
  std::size_t at = 0;
  while (given.size() - at >= trace::kSectionHead) {
    trace::ByteReader head(given.substr(at));
    const std::string_view letters = head.bytes(4);
    const auto length = head.fixed<std::uint32_t>();
    if (length > given.size() - at - trace::kSectionHead) {
      break;
    }
    file += trace::section(letters, given.substr(at + trace::kSectionHead, length));
    at += trace::kSectionHead + length;
  }
  file += given.substr(at);
  return file;
}

}  // namespace heapwright::fuzz
