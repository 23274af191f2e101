// Reads a raw file from disk: its header, and a list of its raw blocks by writer and sequence. The
// contents of a raw block are read on demand.
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
  // Opens a file. Returns nullptr, with one line in `error`, if nothing of it can be used.
  static std::unique_ptr<RawFile> open(const std::string& path, std::string& error);
  ~RawFile();
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  const FileHeader& header() const { return *reinterpret_cast<const FileHeader*>(header_.data()); }
  // All blocks, sorted by writer, then sequence.
  const std::vector<BlockLocation>& blocks() const { return blocks_; }
  // The bytes of blocks with an invalid header.
  std::uint64_t lost_bytes() const { return lost_; }
  // Whether the file ends within a block.
  bool truncated() const { return truncated_; }
  // Reads the bytes of a block into `into`, fewer if the file ends within it. Returns `into`.
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
