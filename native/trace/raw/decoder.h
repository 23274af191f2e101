// Decodes the records of one raw block. Any bytes are safe: the first invalid record ends the
// block, and nothing outside the block is read.
#pragma once

#include <span>

#include "raw_format/bases.h"
#include "raw_format/format.h"

namespace heapwright::raw {

struct Record {
  Tag tag = Tag::kEnd;
  Other other = Other::kClock;  // if tag is kOther
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t value = 0;  // of kOther; kLive, kUsableSize, kInternalBlock and kFilling use `address`
  std::uint64_t clock = 0;  // after this record
};

class BlockDecoder {
 public:
  enum class Result : std::uint8_t { kRecord, kEnd, kCorrupt };

  BlockDecoder() = default;
  // `block` is the whole block with its header; it is shorter if the file is truncated.
  explicit BlockDecoder(std::span<const std::uint8_t> block);

  Result next(Record& record);
  // Returns the bytes up to the last one that is not zero; after kCorrupt they are lost.
  std::size_t unread_bytes() const;
  // Returns the bytes of the block that were read, with its header.
  std::size_t used() const { return at_; }

 private:
  bool read(std::size_t width, std::uint64_t& value);
  bool read_event(unsigned tag, Record& record);
  bool read_other(unsigned tag, Record& record);
  void read_address(Distance distance, Record& record);

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  std::uint64_t clock_ = 0;
  std::uint64_t large_ = 0;  // the bits above 16 of the next size
  bool stamped_ = false;
  Bases bases_;
};

}  // namespace heapwright::raw
