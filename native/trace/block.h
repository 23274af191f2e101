// Encodes and decodes an event block of the packed trace: up to kBlockEvents events in columns,
// each compressed by itself.
//
//   block   := varint events | varint objects allocated before | varint ticks of the first event
//              | column × kColumns
//   column  := u8 codec | varint length | varint stored length | stored bytes
//
//   kKinds          one byte an event: the kind, plus 0x80 if the event has touched bytes, plus
//                   0x40 for a sized free of an object of this block with the object's present size
//   kThreads        pairs of varints: a number of events, and the thread that made them
//   kTimes          varints: zig-zag of ticks since the event before
//   kSizes          varints: the sizes of allocations
//   kNewSizes       varints: the sizes of reallocs, and of sized frees without 0x40
//   kAlignments     varints, of aligned allocations
//   kReferences     one byte for each event that names an object, see below
//   kReferenceBits  the further bits of the references
//   kTouched        varints: touched bytes
//   kValues         varints, of forks, phases, readings of resident memory and its parts, ticks, and
//                   creations of threads
//
// A reference names an object by the number of allocations since its own ('ago'), or by its
// distance from the object that the same thread named last, whichever takes fewer bits:
//
//   byte    0..15   ago is 1..16
//          16..48   zig-zag 0..32 from the object named before by a thread of the same number,
//                   modulo kLanes
//          49..     ago in [2^e, 2^(e+1)), e from 4 on: byte = 49 + 4 (e - 4) + the two bits after
//                   the leading one; the other e - 2 bits are in kReferenceBits
//
// So the frees of a container's elements in order cost almost nothing. Any other reference costs
// the entropy of its magnitude plus its low bits.
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

// The objects named last, from which references are counted; the encoder and the decoder keep the
// same.
class ReferenceState {
 public:
  static constexpr std::size_t kLanes = 64;
  std::uint64_t& last(std::uint32_t thread) { return last_[thread % kLanes]; }

 private:
  std::array<std::uint64_t, kLanes> last_{};
};

// The sizes of the objects that are allocated in a block, so that sized frees need not repeat them.
class BlockSizes {
 public:
  void begin(std::uint64_t objects_before) {
    first_ = objects_before;
    sizes_.clear();
  }
  void add(std::uint64_t size) { sizes_.push_back(size); }
  // Returns the size of an object, nullptr if it was allocated in an earlier block.
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

  // Adds an event; `objects` is the number of objects allocated before it.
  void add(const Event& event, std::uint64_t objects);
  // Returns the bytes of the block and begins a new one.
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

  // Opens a block. Returns false if the bytes are no block; error() says why.
  bool open(std::string_view block);
  // Reads the next event. Returns false at the end, and if the columns contradict each other; then
  // error() is not empty.
  bool next(Event& event);
  const std::string& error() const { return error_; }
  // The number of events left in an undamaged block.
  std::uint64_t left() const { return left_; }
  // The number of objects allocated so far.
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
