#include "decoder.h"

#include <cstring>

namespace heapwright::raw {

BlockDecoder::BlockDecoder(std::span<const std::uint8_t> block) : bytes_(block), at_(sizeof(BlockHeader)) {
  if (block.size() < sizeof(BlockHeader)) {
    bytes_ = {};
    at_ = 0;
    return;
  }
  std::memcpy(&clock_, block.data() + offsetof(BlockHeader, clock), sizeof(clock_));
}

bool BlockDecoder::read(std::size_t width, std::uint64_t& value) {
  if (bytes_.size() - at_ < width) {
    return false;
  }
  value = 0;
  for (std::size_t i = 0; i < width; ++i) {
    value |= std::uint64_t{bytes_[at_ + i]} << (8 * i);
  }
  at_ += width;
  return true;
}

void BlockDecoder::read_address(Distance distance, Record& record) {
  const std::uint64_t unit = bases_.unit(distance);
  bases_.update(distance, unit);
  record.address = unit * kAddressUnit;
}

bool BlockDecoder::read_event(unsigned tag, Record& record) {
  std::uint64_t value = 0;
  if (stamped_) {
    if (!read(1, value)) {
      return false;
    }
    clock_ += value;
  }
  if (!read((tag >> 3 & 3) + 1, value)) {
    return false;
  }
  read_address({.zigzag = value, .base = tag >> 6}, record);
  record.tag = static_cast<Tag>(tag & 7);
  const unsigned wide = tag >> 5 & 1;
  if (record.tag != Tag::kMalloc && record.tag != Tag::kCalloc && record.tag != Tag::kRealloc) {
    return wide == 0;
  }
  if (!read(1 + wide, record.size)) {
    return false;
  }
  record.size |= large_ << 16;
  large_ = 0;
  return true;
}

bool BlockDecoder::read_other(unsigned tag, Record& record) {
  const unsigned what = tag >> 3;
  std::uint64_t length = 0;
  if (what < static_cast<unsigned>(Other::kClock) || what > static_cast<unsigned>(raw::kLastOther) ||
      !read(1, length) || length > 8 || !read(length, record.value)) {
    return false;
  }
  record.tag = Tag::kOther;
  record.other = static_cast<Other>(what);
  switch (record.other) {
    case Other::kClock:
      clock_ += record.value;
      break;
    case Other::kNewBase:
      bases_.replace_next(record.value);
      break;
    case Other::kStamped:
      stamped_ = true;
      break;
    case Other::kSizeHighBits:
      large_ = record.value;
      break;
    case Other::kLive:
    case Other::kUsableSize:
    case Other::kInternalBlock:
    case Other::kFilling:
      read_address({.zigzag = record.value / kBases, .base = static_cast<unsigned>(record.value % kBases)},
                   record);
      break;
    default:
      break;
  }
  return true;
}

BlockDecoder::Result BlockDecoder::next(Record& record) {
  if (at_ >= bytes_.size() || bytes_[at_] == 0) {
    return Result::kEnd;
  }
  const std::size_t begin = at_;
  const unsigned tag = bytes_[at_++];
  record = Record{};
  const bool good = (tag & 7) == static_cast<unsigned>(Tag::kOther) ? read_other(tag, record)
                    : (tag & 7) == 0                                ? false
                                                                    : read_event(tag, record);
  if (!good) {
    at_ = begin;
    return Result::kCorrupt;
  }
  record.clock = clock_;
  return Result::kRecord;
}

std::size_t BlockDecoder::unread_bytes() const {
  std::size_t end = bytes_.size();
  while (end > at_ && bytes_[end - 1] == 0) {
    --end;
  }
  return end - at_;
}

}  // namespace heapwright::raw
