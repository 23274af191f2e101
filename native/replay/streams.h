// Writes the operations file: one stream for each thread, in chained chunks.
//
// A chunk gets its number when its stream begins it. So a full chunk can name the next one before
// that has any words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/draft_file.h"
#include "ops.h"

namespace heapwright::replay {

class OpsFile {
 public:
  OpsFile() = default;
  OpsFile(const OpsFile&) = delete;
  OpsFile& operator=(const OpsFile&) = delete;
  ~OpsFile();  // leaves no file unless finish() succeeded

  // Creates the file and leaves room for the header and the entries of so many threads and lanes.
  bool create(const std::string& path, std::size_t threads, std::size_t max_lanes);
  std::uint32_t new_chunk() { return chunks_++; }
  bool write_chunk(std::uint32_t chunk, const std::vector<Word>& words);
  // Writes header and entries at the front and renames the file to its path.
  bool finish(OpsHeader header, const std::vector<ThreadEntry>& threads, const std::vector<LaneEntry>& lanes);
  const std::string& error() const { return error_; }

 private:
  bool write(const void* bytes, std::size_t size, std::uint64_t offset);
  bool fail();

  std::string path_;
  DraftFile draft_;
  int file_ = -1;
  std::uint64_t first_chunk_ = 0;
  std::uint32_t chunks_ = 0;
  std::string error_;
};

// The stream of one thread. Its current chunk is in memory.
class Stream {
 public:
  // Begins the stream if it has not begun; returns its first chunk.
  std::uint32_t begin(OpsFile& file) {
    if (!begun_) {
      begun_ = true;
      first_ = current_ = file.new_chunk();
      words_.reserve(kChunkWords);
    }
    return first_;
  }
  // Makes room for one operation with its prefixes; false if the file cannot be written.
  bool make_room(OpsFile& file) {
    (void)begin(file);
    if (words_.size() + kMaxOpWords < kChunkWords) {
      return true;
    }
    const std::uint32_t next = file.new_chunk();
    words_.push_back(word(kNext, 0, next));
    const bool written = file.write_chunk(current_, words_);
    words_.clear();
    current_ = next;
    return written;
  }
  void put(Word w) { words_.push_back(w); }
  // Writes the last chunk and frees its memory.
  bool close(OpsFile& file) {
    const bool written = file.write_chunk(current_, words_);
    std::vector<Word>().swap(words_);
    return written;
  }

 private:
  std::vector<Word> words_;
  std::uint32_t first_ = 0;
  std::uint32_t current_ = 0;
  bool begun_ = false;
};

}  // namespace heapwright::replay
