// Encodes and decodes the sections of a packed file, other than its blocks; docs/trace-format.md
// describes them.
//
//   file    := "HWPACK" | u16 version | section* | end
//   section := 4 letters | u32 length | u32 CRC-32 of letters, length and bytes | bytes
//   end     := u64 where the section INDX begins | "HWPKEND\n"
//
//   HEAD    pairs of strings (varint length, bytes): a key and its value; readers skip unknown keys
//   EVTS    a block of events (block.h)
//   INDX    for each block, varints: its offset less that of the block before, events, objects
//           allocated before, ticks of its first event
//   DONE    varints: the summary, then the loss; then the reason of the loss as a string
//
// HEAD comes first; only a complete file has INDX and DONE. All numbers are little-endian.
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
// The version of a sample is 2, so that an older heapwright refuses it and does not take it for the
// whole trace. The version of a trace with the parts of resident memory is 3, with kSpawn it is 4,
// with kEnd 5, with kTouchedSoFar 6. Any other has 1.
inline constexpr std::uint16_t kPackedVersion = 6;
constexpr std::uint16_t packed_version(const Header& header) {
  return header.fills                ? 6
         : header.ends               ? 5
         : header.spawns             ? 4
         : header.forked.has_value() ? 3
         : header.sample != 0        ? 2
                                     : 1;
}
inline constexpr std::string_view kPackedEnd{"HWPKEND\n"};
inline constexpr std::size_t kSectionHead = 12;
inline constexpr std::uint32_t kMaxSection = 64U << 20;  // bytes; a longer section is damaged
inline constexpr std::size_t kEndSize = 16;

struct FileCloser {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

// Returns a whole section: its letters, length, check sum and bytes.
Bytes section(std::string_view letters, std::string_view bytes);

Bytes encode_header(const Header& header, std::uint64_t tick);
// Decodes a HEAD section.
//
// bytes   the section
// header  gets the header
// tick    gets the resolution of times in nanoseconds
//
// Returns false if the bytes are no header, the tick is 0, or the rate of the sample is impossible.
bool decode_header(std::string_view bytes, Header& header, std::uint64_t& tick);

Bytes encode_done(const Summary& summary, const Loss& loss);
// Decodes a DONE section into `summary` and `loss`. Returns false if the bytes are none.
bool decode_done(std::string_view bytes, Summary& summary, Loss& loss);

}  // namespace heapwright::trace
