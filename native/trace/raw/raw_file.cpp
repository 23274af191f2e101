#include "raw_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

namespace heapwright::raw {

std::unique_ptr<RawFile> RawFile::open(const std::string& path, std::string& error) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat is{};
  if (file < 0 || fstat(file, &is) != 0) {
    error = path + ": " + std::strerror(errno);
    if (file >= 0) {
      close(file);
    }
    return nullptr;
  }
  std::unique_ptr<RawFile> raw(new RawFile(file));
  const std::size_t got = raw->read_at(0, raw->header_.data(), kBlockBytes);
  const FileHeader& header = raw->header();
  if (got < sizeof(header.magic) || header.magic != kFileMagic) {
    error = path + ": not a recording of heapwright's recorder, or its beginning was never written";
    return nullptr;
  }
  if (header.version != kVersion || header.block_bytes != kBlockBytes) {
    error = path + ": a recording of another version of heapwright: pack it with that one";
    return nullptr;
  }
  raw->find_blocks(static_cast<std::uint64_t>(is.st_size));
  return raw;
}

RawFile::~RawFile() { close(file_); }

std::size_t RawFile::read_at(std::uint64_t where, void* into, std::size_t bytes) const {
  std::size_t got = 0;
  while (got < bytes) {
    const ssize_t more =
        pread(file_, static_cast<char*>(into) + got, bytes - got, static_cast<off_t>(where + got));
    if (more < 0 && errno == EINTR) {
      continue;
    }
    if (more <= 0) {
      break;
    }
    got += static_cast<std::size_t>(more);
  }
  return got;
}

void RawFile::find_blocks(std::uint64_t bytes) {
  constexpr std::uint64_t kMaxBlocks = 1ULL << 32;
  for (std::uint64_t index = 0; index < kMaxBlocks; ++index) {
    const std::uint64_t where = (index + 1) * kBlockBytes;
    if (where >= bytes) {
      truncated_ = bytes > kBlockBytes && bytes % kBlockBytes != 0;
      break;
    }
    BlockHeader block{};
    const std::size_t got = read_at(where, &block, sizeof(block));
    if (got < sizeof(block) || block.magic != kBlockMagic || block.writer >= kWriters) {
      // The process ended before it began this block (all zero), or the block is damaged.
      const BlockHeader none{};
      if (std::memcmp(&block, &none, sizeof(block)) != 0) {
        lost_ += std::min<std::uint64_t>(bytes - where, kBlockBytes);
      } else if (const off_t data = lseek(file_, static_cast<off_t>(where), SEEK_DATA); data >= 0) {
        // A file may have holes of any length.
        index = std::max(index + 1, static_cast<std::uint64_t>(data) / kBlockBytes - 1) - 1;
      } else if (errno == ENXIO) {
        index = bytes / kBlockBytes;  // no data follow
      }
      continue;
    }
    if (block.level < header().min_level.load()) {
      continue;  // dropped to thin the sample
    }
    blocks_.push_back({block.sequence, block.writer, static_cast<std::uint32_t>(index)});
  }
  std::sort(blocks_.begin(), blocks_.end(), [](const BlockLocation& a, const BlockLocation& b) {
    return std::tie(a.writer, a.sequence, a.index) < std::tie(b.writer, b.sequence, b.index);
  });
}

std::vector<std::uint8_t>& RawFile::read(const BlockLocation& block, std::vector<std::uint8_t>& into) const {
  into.resize(kBlockBytes);
  into.resize(read_at((std::uint64_t{block.index} + 1) * kBlockBytes, into.data(), kBlockBytes));
  return into;
}

}  // namespace heapwright::raw
