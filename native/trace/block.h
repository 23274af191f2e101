// A block of the packed trace: up to kBlockEvents events in columns, each column compressed by itself.
//
//   block   := varint events | varint objects made before | varint time of the first event in ticks | column × kColumns
//   column  := u8 codec | varint length | varint stored length | stored bytes
//
//   kKinds       one byte an event: the kind, plus 0x80 where it says how much of its block was touched,
//                plus 0x40 on a sized free of what was made in this block, by the size it was last asked for with
//   kThreads     pairs of varints: so many events, of this thread
//   kTimes       varints: zig-zag of ticks since the event before
//   kSizes       varints: what makings ask for
//   kNewSizes    varints: what reallocs ask for, what sized frees without 0x40 say
//   kAlignments  varints, of aligned makings
//   kReferences  one byte for each event that names an object, see below
//   kReferenceBits       the bits those bytes leave open
//   kTouched     varints
//   kValues      varints, of forks, marks and resident memory
//
// A reference is 'how many makings ago', or the distance to what the same thread referred to last, whichever is said shorter:
//
//   byte    0..15   made 1..16 makings ago
//          16..48   zig-zag 0..32 from the object referred to before (by the threads of the same number modulo kLanes)
//          49..     ago in [2^e, 2^(e+1)), e from 4 on: byte = 49 + 4 (e - 4) + the two bits after the leading one; the
//                   other e - 2 bits are in kReferenceBits
//
// So tearing down a container costs next to nothing, and what is left costs the entropy of its magnitude plus its low bits.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bytes.h"
#include "event.h"

namespace heapwright::trace {

inline constexpr std::uint32_t kBlockEvents = 1U << 20;
inline constexpr std::uint64_t kMaxObjects = std::uint64_t{1} << 48;
inline constexpr std::uint64_t kMaxThreads = std::uint64_t{1} << 24;

enum Column : std::uint8_t {
  kKinds,
  kThreads,
  kTimes,
  kSizes,
  kNewSizes,
  kAlignments,
  kReferences,
  kReferenceBits,
  kTouched,
  kValues,
  kColumns
};

// What references are written relative to; the same on both sides.
class ReferenceState {
 public:
  static constexpr std::size_t kLanes = 64;
  std::uint64_t& last(std::uint32_t thread) { return last_[thread % kLanes]; }

 private:
  std::array<std::uint64_t, kLanes> last_{};
};

// The sizes of what is made within a block, so that sized frees need not repeat them.
class BlockSizes {
 public:
  void begin(std::uint64_t objects_before) {
    first_ = objects_before;
    sizes_.clear();
  }
  void add(std::uint64_t size) { sizes_.push_back(size); }
  // nullptr for what was made before.
  std::uint64_t* find(std::uint64_t object) {
    return object - first_ < sizes_.size() ? &sizes_[object - first_] : nullptr;
  }

 private:
  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> sizes_;
};

class BlockEncoder {
 public:
  explicit BlockEncoder(std::uint64_t tick) : tick_(tick) {}

  std::uint32_t events() const { return events_; }
  std::uint64_t first_tick() const { return first_tick_; }
  std::uint64_t objects_before() const { return objects_before_; }

  // `objects`: objects made before this event.
  void add(const Event& event, std::uint64_t objects);
  // The block's bytes; begins a new one.
  Bytes take();

 private:
  void put_reference(const Event& event, std::uint64_t objects);
  void end_run();

  std::uint64_t tick_;
  std::uint32_t events_ = 0;
  std::uint64_t objects_before_ = 0;
  std::uint64_t first_tick_ = 0;
  std::uint64_t last_tick_ = 0;
  std::uint32_t thread_ = 0;
  std::uint64_t run_ = 0;
  std::array<Bytes, kColumns> columns_;
  BitWriter reference_bits_;
  ReferenceState references_;
  BlockSizes sizes_;
};

class BlockDecoder {
 public:
  explicit BlockDecoder(std::uint64_t tick = 1) : tick_(tick) {}

  // False where the bytes are no block; error() says why.
  bool open(std::string_view block);
  // The next event; false at the end or where the columns contradict each other: error() is empty only at the end.
  bool next(Event& event);
  const std::string& error() const { return error_; }
  // How many events are still to come, if all is well.
  std::uint64_t left() const { return left_; }
  // Objects made up to here.
  std::uint64_t objects() const { return objects_; }

 private:
  bool read_fields(Event& event, std::uint8_t kind);
  bool read_reference(Event& event);

  std::uint64_t tick_;
  std::uint64_t left_ = 0;
  std::uint64_t objects_ = 0;
  std::uint64_t now_ = 0;  // in ticks
  std::uint64_t run_ = 0;
  std::uint64_t thread_ = 0;
  std::array<std::string, kColumns> storage_;
  std::array<ByteReader, kColumns> columns_;
  BitReader reference_bits_;
  ReferenceState references_;
  BlockSizes sizes_;
  std::string error_;
};

}  // namespace heapwright::trace
