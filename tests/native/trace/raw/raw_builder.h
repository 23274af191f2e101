// Builds raw files as the recorder writes them, with events and stamps of the test's choice.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "recorder/encoder.h"
#include "trace/raw/raw_reader.h"

namespace heapwright::recorder {

class RawBuilder {
 public:
  RawBuilder() : header_(kBlockBytes) {
    auto& h = header();
    h.magic = kFileMagic;
    h.version = kVersion;
    h.block_bytes = kBlockBytes;
    h.clock = ClockKind::kMonotonic;
    h.page_size = 4096;
    h.pid = 7;
    h.ending.store(Ending::kExited);
  }

  FileHeader& header() { return *reinterpret_cast<FileHeader*>(header_.data()); }

  // Returns the stream of a writer, with room for an event. Its thread has the same number.
  Stream& writer(std::uint32_t number) {
    Open& open = writers_[number];
    if (open.stream.at >= open.stream.limit) {
      blocks_.push_back(std::make_unique<std::vector<std::uint8_t>>(kBlockBytes));
      begin_block(open.stream, blocks_.back()->data(), number, open.sequence++, open.thread, 0);
      if (open.sequence == 1) {
        open.thread = number;
        put_other(open.stream, Other::kThreadStart, number);
      }
    }
    return open.stream;
  }
  void event(std::uint32_t number, std::uint64_t when, Tag kind, std::uint64_t address,
             std::uint64_t size = 0) {
    Stream& stream = writer(number);
    if (kind == Tag::kMalloc || kind == Tag::kCalloc || kind == Tag::kRealloc) {
      put_stamped<true>(stream, kind, address, size, when);
    } else {
      put_stamped<false>(stream, kind, address, 0, when);
    }
  }
  void other(std::uint32_t number, std::uint64_t when, Other what, std::uint64_t value) {
    put_clock(writer(number), when);
    put_other(writer(number), what, value);
  }

  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = header_;
    for (const auto& block : blocks_) {
      all.insert(all.end(), block->begin(), block->end());
    }
    return all;
  }

 private:
  struct Open {
    Stream stream;
    std::uint64_t sequence = 0;
    std::uint32_t thread = 0;
  };
  std::vector<std::uint8_t> header_;
  std::vector<std::unique_ptr<std::vector<std::uint8_t>>> blocks_;
  std::map<std::uint32_t, Open> writers_;
};

// A temporary file that is removed with its object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<std::uint8_t>& bytes) {
    char name[] = "/tmp/heapwright-raw-XXXXXX";
    const int file = mkstemp(name);
    path_ = name;
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t more = write(file, bytes.data() + done, bytes.size() - done);
      if (more <= 0) {
        break;
      }
      done += static_cast<std::size_t>(more);
    }
    close(file);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace heapwright::recorder
