// Reads the records of one writer from all of its blocks. It applies the clock records and the
// prefixes, and returns the other records, each with its time, its thread and its prefixes.
#pragma once

#include <span>

#include "decoder.h"
#include "raw_file.h"

namespace heapwright::raw {

struct TimedRecord {
  Record record;
  std::uint32_t thread = 0;
  std::uint64_t clock = 0;  // never less than that of the record before
  int alignment_log2 = -1;
  std::uint64_t touched = ~std::uint64_t{0};
  std::uint64_t ticks = ~std::uint64_t{0};  // of the thread before this record; all ones: not recorded
  bool older = false;                       // the thread made some of them before the window
  std::uint64_t born = ~std::uint64_t{0};   // rank of an object that was live when the window began
};

class WriterStream {
 public:
  // `blocks` are those of this writer, by sequence.
  WriterStream(const RawFile& file, std::span<const BlockLocation> blocks) : file_(&file), blocks_(blocks) {}

  bool next(TimedRecord& item);
  std::uint64_t lost_bytes() const { return lost_bytes_; }
  std::uint64_t lost_blocks() const { return lost_blocks_; }

 private:
  bool open_block();
  // Returns whether the record is a prefix of the next one.
  bool take_prefix(const Record& record);

  const RawFile* file_;
  std::span<const BlockLocation> blocks_;
  std::size_t next_block_ = 0;
  std::vector<std::uint8_t> buffer_;
  BlockDecoder decoder_;
  bool in_block_ = false;
  std::uint32_t thread_ = 0;
  std::uint64_t clock_ = 0;
  TimedRecord prefixes_;  // of the next record
  std::uint64_t lost_bytes_ = 0;
  std::uint64_t lost_blocks_ = 0;
};

}  // namespace heapwright::raw
