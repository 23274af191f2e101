// A raw file on disk: its header, and which blocks belong to which writer in which order. The blocks' contents are read when asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "raw_format/format.h"

namespace heapwright::raw {

struct BlockLocation {
  std::uint64_t sequence = 0;
  std::uint32_t writer = 0;
  std::uint32_t index = 0;
};

class RawFile {
 public:
  // nullptr with one line in `error` where nothing of it can be used.
  static std::unique_ptr<RawFile> open(const std::string& path, std::string& error);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  const FileHeader& header() const { return *reinterpret_cast<const FileHeader*>(header_.data()); }
  // Sorted by writer, then sequence.
  const std::vector<BlockLocation>& blocks() const { return blocks_; }
  // Bytes of blocks whose header makes no sense.
  std::uint64_t lost_bytes() const { return lost_; }
  // The file ends within a block.
  bool truncated() const { return truncated_; }
  // A block's bytes, fewer where the file ends within it.
  std::vector<std::uint8_t>& read(const BlockLocation& block, std::vector<std::uint8_t>& into) const;

 private:
  explicit RawFile(int file) : file_(file), header_(kBlockBytes) {}
  void find_blocks(std::uint64_t bytes);
  std::size_t read_at(std::uint64_t where, void* into, std::size_t bytes) const;

  int file_;
  std::vector<std::uint8_t> header_;
  std::vector<BlockLocation> blocks_;
  std::uint64_t lost_ = 0;
  bool truncated_ = false;
};

}  // namespace heapwright::raw
