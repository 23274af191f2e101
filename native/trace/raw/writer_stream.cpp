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
    alignment_log2_ = -1;
    touched_ = ~std::uint64_t{0};
    return true;
  }
  buffer_ = {};
  return false;
}

void WriterStream::take_prefix(const Record& record) {
  if (record.other == Other::kThread || record.other == Other::kThreadStart) {
    thread_ = static_cast<std::uint32_t>(record.value);
  } else if (record.other == Other::kAlignment) {
    alignment_log2_ = static_cast<int>(std::min<std::uint64_t>(record.value, 62));
  } else if (record.other == Other::kTouched) {
    touched_ = record.value;
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
      bytes_ += decoder_.used();
      in_block_ = false;
      continue;
    }
    clock_ = std::max(clock_, record.clock);
    if (record.tag == Tag::kOther && record.other <= Other::kThreadStart) {
      take_prefix(record);
      if (record.other != Other::kThreadStart) {
        continue;
      }
    }
    item = {.record = record,
            .thread = thread_,
            .clock = clock_,
            .alignment_log2 = alignment_log2_,
            .touched = touched_};
    alignment_log2_ = -1;
    touched_ = ~std::uint64_t{0};
    return true;
  }
}

}  // namespace heapwright::raw
