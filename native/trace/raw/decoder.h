// Reads the records of one block. Any bytes will do: what makes no sense ends the block, nothing is read outside of it.
#pragma once

#include <span>

#include "raw_format/bases.h"
#include "raw_format/format.h"

namespace heapwright::raw {

struct Record {
  Tag tag = Tag::kEnd;
  Other other = Other::kClock;  // where tag is kOther
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t value = 0;  // of kOther; for kLive and kUsableSize it is in `address`
  std::uint64_t clock = 0;  // at the record, itself counted in
};

class BlockDecoder {
 public:
  enum class Result : std::uint8_t { kRecord, kEnd, kCorrupt };

  BlockDecoder() = default;
  // The whole block, its header included; shorter where the file is cut.
  explicit BlockDecoder(std::span<const std::uint8_t> block);

  Result next(Record& record);
  // Bytes from here to the last that is not zero: what is lost after kCorrupt.
  std::size_t unread_bytes() const;
  // Bytes of the block that were read, its header included.
  std::size_t used() const { return at_; }

 private:
  bool read(std::size_t width, std::uint64_t& value);
  bool read_event(unsigned tag, Record& record);
  bool read_other(unsigned tag, Record& record);
  void read_address(Distance distance, Record& record);

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::uint64_t clock_ = 0;
  std::uint64_t large_ = 0;  // of the size that comes, what is above 16 bits
  bool stamped_ = false;
  Bases bases_;
};

}  // namespace heapwright::raw
