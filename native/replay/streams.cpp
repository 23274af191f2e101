#include "streams.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace heapwright::replay {

OpsFile::~OpsFile() {
  if (file_ >= 0) {
    (void)::close(file_);
  }
}

bool OpsFile::fail() {
  error_ = path_ + ": cannot be written: " + std::strerror(errno);
  return false;
}

bool OpsFile::create(const std::string& path, std::size_t threads, std::size_t max_lanes) {
  path_ = path;
  const std::size_t front = sizeof(OpsHeader) + threads * sizeof(ThreadEntry) + max_lanes * sizeof(LaneEntry);
  first_chunk_ = (front + kChunkBytes - 1) / kChunkBytes * kChunkBytes;
  file_ = draft_.create(path);
  return file_ >= 0 || fail();
}

bool OpsFile::write(const void* bytes, std::size_t size, std::uint64_t offset) {
  const char* from = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t done = ::pwrite(file_, from, size, static_cast<off_t>(offset));
    if (done < 0 && errno != EINTR) {
      return fail();
    }
    const auto written = static_cast<std::size_t>(done < 0 ? 0 : done);
    from += written;
    size -= written;
    offset += written;
  }
  return true;
}

bool OpsFile::write_chunk(std::uint32_t chunk, const std::vector<Word>& words) {
  return write(words.data(), words.size() * sizeof(Word), first_chunk_ + std::uint64_t{chunk} * kChunkBytes);
}

bool OpsFile::finish(OpsHeader header, const std::vector<ThreadEntry>& threads,
                     const std::vector<LaneEntry>& lanes) {
  header.threads = threads.size();
  header.lanes = lanes.size();
  header.first_chunk = first_chunk_;
  header.chunks = chunks_;
  std::uint64_t offset = sizeof header;
  if (!write(&header, sizeof header, 0) ||
      !write(threads.data(), threads.size() * sizeof(ThreadEntry), offset)) {
    return false;
  }
  offset += threads.size() * sizeof(ThreadEntry);
  if (!write(lanes.data(), lanes.size() * sizeof(LaneEntry), offset)) {
    return false;
  }
  const int file = file_;
  file_ = -1;
  if (::close(file) != 0 || !draft_.publish()) {
    return fail();
  }
  return true;
}

}  // namespace heapwright::replay
