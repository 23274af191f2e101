// The file of operations as it is written: a stream for each thread, in chained chunks. Chunks are numbered as they are begun, so
// a stream knows where it goes on before it has got there.
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
  ~OpsFile();  // what was not finished leaves no file

  bool create(const std::string& path, std::size_t threads, std::size_t most_lanes);
  std::uint32_t new_chunk() { return chunks_++; }
  bool write_chunk(std::uint32_t chunk, const std::vector<Word>& words);
  // Writes the plan at the front and gives the file its name.
  bool finish(Plan plan, const std::vector<ThreadPlan>& threads, const std::vector<LanePlan>& lanes);
  const std::string& error() const { return error_; }

 private:
  bool write(const void* bytes, std::size_t size, std::uint64_t place);
  bool fail();

  std::string path_;
  DraftFile draft_;
  int file_ = -1;
  std::uint64_t first_chunk_ = 0;
  std::uint32_t chunks_ = 0;
  std::string error_;
};

class Stream {
 public:
  // The chunk the stream begins with; it is begun now if it was not yet.
  std::uint32_t begin(OpsFile& file) {
    if (!begun_) {
      begun_ = true;
      first_ = current_ = file.new_chunk();
      words_.reserve(kChunkWords);
    }
    return first_;
  }
  // Room for an operation with all that stands before it; false where the file cannot be written.
  bool room(OpsFile& file) {
    (void)begin(file);
    if (words_.size() + kGroup < kChunkWords) {
      return true;
    }
    const std::uint32_t next = file.new_chunk();
    words_.push_back(word(kNext, 0, next));
    const bool good = file.write_chunk(current_, words_);
    words_.clear();
    current_ = next;
    return good;
  }
  void put(Word w) { words_.push_back(w); }
  // Writes what is left and gives the memory back.
  bool close(OpsFile& file) {
    const bool good = file.write_chunk(current_, words_);
    std::vector<Word>().swap(words_);
    return good;
  }
  bool begun() const { return begun_; }

 private:
  std::vector<Word> words_;
  std::uint32_t first_ = 0;
  std::uint32_t current_ = 0;
  bool begun_ = false;
};

}  // namespace heapwright::replay
