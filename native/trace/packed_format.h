// The packed file around its blocks; docs/trace-format.md draws it.
//
//   file    := "HWPACK" | u16 version | section* | end
//   section := 4 letters | u32 length | u32 CRC-32 of letters, length and bytes | bytes
//   end     := u64 where the section INDX begins | "HWPKEND\n"
//
//   HEAD    pairs of strings (varint length, bytes): a key and its value; readers pass over keys they do not know
//   EVTS    a block of events (block.h)
//   INDX    for each block, varints: its place less the one before, events, objects made before, ticks of its first event
//   DONE    varints: the summary, then the loss; then the loss's reason as a string
//
// HEAD comes first; INDX and DONE only once the file is whole. All numbers are little-endian.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "bytes.h"
#include "packed.h"

namespace heapwright::trace {

inline constexpr std::string_view kPackedMagic{"HWPACK"};
inline constexpr std::uint16_t kPackedVersion = 1;
inline constexpr std::string_view kPackedEnd{"HWPKEND\n"};
inline constexpr std::size_t kSectionHead = 12;
inline constexpr std::uint32_t kMaxSection = 64U << 20;  // bytes; a longer one is damage
inline constexpr std::size_t kEndSize = 16;

struct FileCloser {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

Bytes section(std::string_view letters, std::string_view bytes);

Bytes encode_header(const Header& header, std::uint64_t tick);
// False where the bytes are no header, or its tick is 0.
bool decode_header(std::string_view bytes, Header& header, std::uint64_t& tick);

struct IndexEntry {
  std::uint64_t offset = 0;
  std::uint64_t events = 0;
  std::uint64_t objects_before = 0;
  std::uint64_t first_tick = 0;
};

Bytes encode_done(const Summary& summary, const Loss& loss);
bool decode_done(std::string_view bytes, Summary& summary, Loss& loss);

}  // namespace heapwright::trace
