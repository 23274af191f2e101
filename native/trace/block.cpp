#include "block.h"

#include <bit>

#include "codec.h"

namespace heapwright::trace {
namespace {

constexpr std::uint8_t kTouchedFlag = 0x80;
constexpr std::uint8_t kSameSizeFlag = 0x40;
constexpr unsigned kNear = 16;  // references this near take one byte and no bits
constexpr unsigned kFirstBucket = 3 * kNear + 1;
constexpr std::uint64_t kMaxColumn =
    std::uint64_t{kBlockEvents} * 20;  // bytes: two varints of the greatest length for each event

}  // namespace

void BlockEncoder::end_run() {
  if (run_ > 0) {
    put_varint(columns_[kThreads], run_);
    put_varint(columns_[kThreads], thread_);
    run_ = 0;
  }
}

void BlockEncoder::put_reference(const Event& event, std::uint64_t objects) {
  const std::uint64_t ago = objects - event.object;
  std::uint64_t& last = references_.last(event.thread);
  const std::uint64_t step = zigzag(static_cast<std::int64_t>(event.object - last));
  last = event.object;
  unsigned byte = 0;
  if (ago <= kNear) {
    byte = static_cast<unsigned>(ago - 1);
  } else if (step <= std::uint64_t{2} * kNear) {
    byte = kNear + static_cast<unsigned>(step);
  } else {
    const auto exponent = static_cast<unsigned>(std::bit_width(ago)) - 1;
    byte = kFirstBucket + 4 * (exponent - 4) + static_cast<unsigned>((ago >> (exponent - 2)) & 3);
    reference_bits_.put(ago & ((std::uint64_t{1} << (exponent - 2)) - 1), exponent - 2);
  }
  columns_[kReferences].push_back(static_cast<char>(byte));
}

void BlockEncoder::add(const Event& event, std::uint64_t objects) {
  const std::uint64_t now = event.time / tick_;
  if (events_ == 0) {
    objects_before_ = objects;
    first_tick_ = last_tick_ = now;
    sizes_.begin(objects);
  }
  events_++;
  if (run_ > 0 && event.thread != thread_) {
    end_run();
  }
  thread_ = event.thread;
  run_++;
  put_varint(columns_[kTimes], zigzag(static_cast<std::int64_t>(now - last_tick_)));
  last_tick_ = now;

  unsigned flags = 0;
  if (is_allocation(event.kind)) {
    put_varint(columns_[kSizes], event.size);
    sizes_.add(event.size);
    if (event.kind == Kind::kAligned) {
      put_varint(columns_[kAlignments], event.alignment);
    }
  } else if (uses_object(event.kind)) {
    put_reference(event, objects);
    std::uint64_t* size = sizes_.find(event.object);
    if (event.kind == Kind::kRealloc) {
      put_varint(columns_[kNewSizes], event.size);
      if (size != nullptr) {
        *size = event.size;
      }
    } else if (event.kind == Kind::kFreeSized) {
      if (size != nullptr && *size == event.size) {
        flags |= kSameSizeFlag;
      } else {
        put_varint(columns_[kNewSizes], event.size);
      }
    } else if (event.kind != Kind::kUsableSize && event.touched != kUnknown) {
      flags |= kTouchedFlag;
      put_varint(columns_[kTouched], event.touched);
    }
  } else if (has_value(event.kind)) {
    put_varint(columns_[kValues], event.value);
  }
  columns_[kKinds].push_back(static_cast<char>(static_cast<unsigned>(event.kind) | flags));
}

Bytes BlockEncoder::take() {
  end_run();
  columns_[kReferenceBits] = reference_bits_.take();
  Bytes block;
  put_varint(block, events_);
  put_varint(block, objects_before_);
  put_varint(block, first_tick_);
  std::string packed;
  for (Bytes& column : columns_) {
    const Codec codec = compress(column, packed);
    block.push_back(static_cast<char>(codec));
    put_varint(block, column.size());
    put_varint(block, packed.size());
    block += packed;
    column.clear();
  }
  events_ = 0;
  references_ = {};
  return block;
}

bool BlockDecoder::open(std::string_view block) {
  ByteReader reader(block);
  left_ = reader.varint();
  objects_ = reader.varint();
  now_ = reader.varint();
  run_ = 0;
  references_ = {};
  sizes_.begin(objects_);
  error_.clear();
  const auto fail = [this](const char* why) {
    left_ = 0;
    error_ = why;
    return false;
  };
  if (!reader.ok() || left_ > kBlockEvents || objects_ > kMaxObjects) {
    return fail("the head of a block is invalid");
  }
  for (std::size_t i = 0; i < kColumns; i++) {
    const auto codec = static_cast<Codec>(reader.byte());
    const std::uint64_t size = reader.varint();
    const std::string_view stored = reader.bytes(reader.varint());
    if (!reader.ok() || size > kMaxColumn) {
      return fail("the head of a column is invalid");
    }
    if (!known(codec)) {
      return fail(codec == Codec::kZstd
                      ? "it is compressed by zstd, which this heapwright was built without: "
                        "install libzstd-dev and build again"
                      : "it is compressed in a way that this heapwright does not know");
    }
    if (!decompress(codec, stored, size, storage_[i])) {
      return fail("a column cannot be decompressed");
    }
    columns_[i] = ByteReader(storage_[i]);
  }
  reference_bits_ = BitReader(storage_[kReferenceBits]);
  return true;
}

bool BlockDecoder::read_reference(Event& event) {
  const unsigned byte = columns_[kReferences].byte();
  std::uint64_t& last = references_.last(event.thread);
  if (byte < kNear) {
    event.object = objects_ - (byte + 1);
  } else if (byte < kFirstBucket) {
    event.object = last + static_cast<std::uint64_t>(unzigzag(byte - kNear));
  } else {
    const unsigned exponent = (byte - kFirstBucket) / 4 + 4;
    const std::uint64_t top = 4 + (byte - kFirstBucket) % 4;
    event.object =
        objects_ - (exponent < 64 ? (top << (exponent - 2)) | reference_bits_.get(exponent - 2) : 0);
  }
  last = event.object;
  return event.object < objects_ && reference_bits_.ok();  // unsigned: a negative number is out of range too
}

bool BlockDecoder::read_fields(Event& event, std::uint8_t kind) {
  const unsigned number = kind & ~unsigned{kTouchedFlag | kSameSizeFlag};
  if (number < static_cast<unsigned>(Kind::kMalloc) || number > static_cast<unsigned>(kLastKind)) {
    return false;
  }
  event.kind = static_cast<Kind>(number);
  if (is_allocation(event.kind)) {
    event.object = objects_++;
    event.size = columns_[kSizes].varint();
    sizes_.add(event.size);
    if (event.kind == Kind::kAligned) {
      event.alignment = columns_[kAlignments].varint();
    }
    return true;
  }
  if (has_value(event.kind)) {
    event.value = columns_[kValues].varint();
    return true;
  }
  if (!uses_object(event.kind)) {
    return true;
  }
  if (!read_reference(event)) {
    return false;
  }
  std::uint64_t* size = sizes_.find(event.object);
  if (event.kind == Kind::kRealloc) {
    event.size = columns_[kNewSizes].varint();
    if (size != nullptr) {
      *size = event.size;
    }
  } else if (event.kind == Kind::kFreeSized && (kind & kSameSizeFlag) != 0) {
    if (size == nullptr) {
      return false;
    }
    event.size = *size;
  } else if (event.kind == Kind::kFreeSized) {
    event.size = columns_[kNewSizes].varint();
  }
  if ((kind & kTouchedFlag) != 0) {
    event.touched = columns_[kTouched].varint();
  }
  return true;
}

bool BlockDecoder::next(Event& event) {
  if (left_ == 0) {
    return false;
  }
  if (run_ == 0) {
    run_ = columns_[kThreads].varint();
    thread_ = columns_[kThreads].varint();
  }
  event = Event{};
  event.thread = static_cast<std::uint32_t>(thread_);
  now_ += static_cast<std::uint64_t>(unzigzag(columns_[kTimes].varint()));
  event.time = now_ * tick_;
  bool good = run_ > 0 && thread_ < kMaxThreads && read_fields(event, columns_[kKinds].byte());
  for (const ByteReader& column : columns_) {
    good = good && column.ok();
  }
  if (!good) {
    left_ = 0;
    error_ = "a block's columns contradict each other";
    return false;
  }
  run_--;
  left_--;
  return true;
}

}  // namespace heapwright::trace
