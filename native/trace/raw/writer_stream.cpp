#include "writer_stream.h"

#include <algorithm>
#include <cstring>

namespace heapwright::raw {

bool WriterStream::open_block() {
  while (next_block_ < blocks_.size()) {
    const BlockLocation& place = blocks_[next_block_];
    const std::uint64_t expected = next_block_ == 0 ? 0 : blocks_[next_block_ - 1].sequence + 1;
    ++next_block_;
    if (place.sequence > expected) {
      lost_blocks_ += std::min(place.sequence - expected, std::uint64_t{1} << 32);
    }
    file_->read(place, buffer_);
    if (buffer_.size() < sizeof(BlockHeader)) {
      continue;
    }
    std::memcpy(&thread_, buffer_.data() + offsetof(BlockHeader, thread), sizeof(thread_));
    decoder_ = BlockDecoder(buffer_);
    in_block_ = true;
    prefixes_ = {};
    return true;
  }
  buffer_ = {};
  return false;
}

bool WriterStream::take_prefix(const Record& record) {
  switch (record.other) {
    case Other::kClock:
    case Other::kNewBase:
    case Other::kStamped:
    case Other::kSizeHighBits:
      return true;
    case Other::kThread:
      thread_ = static_cast<std::uint32_t>(record.value);
      return true;
    case Other::kThreadStart:
      thread_ = static_cast<std::uint32_t>(record.value);
      return false;
    case Other::kAlignment:
      prefixes_.alignment_log2 = static_cast<int>(std::min<std::uint64_t>(record.value, 62));
      return true;
    case Other::kTouched:
      prefixes_.touched = record.value;
      return true;
    case Other::kTicks:
      prefixes_.ticks = record.value >> 1U;
      prefixes_.older = (record.value & 1U) != 0;
      return true;
    case Other::kBorn:
      prefixes_.born = record.value;
      return true;
    default:
      return false;
  }
}

bool WriterStream::next(TimedRecord& item) {
  for (;;) {
    if (!in_block_ && !open_block()) {
      return false;
    }
    Record record;
    const BlockDecoder::Result result = decoder_.next(record);
    if (result != BlockDecoder::Result::kRecord) {
      lost_bytes_ += result == BlockDecoder::Result::kCorrupt ? decoder_.unread_bytes() : 0;
      in_block_ = false;
      continue;
    }
    clock_ = std::max(clock_, record.clock);
    if (record.tag == Tag::kOther && take_prefix(record)) {
      continue;
    }
    item = prefixes_;
    item.record = record;
    item.thread = thread_;
    item.clock = clock_;
    prefixes_ = {};
    return true;
  }
}

}  // namespace heapwright::raw
