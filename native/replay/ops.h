// A trace made ready for replay: flat operations, a stream a thread, in a file that heapwright-replay reads in fixed windows.
//
// Everything that takes thought was done when the file was written (expand.cpp), in another process: slots are given out, sizes
// known, touching decided, order between threads spelt out. What is left to do is a table look-up and the call. So the replayer
// needs 8 bytes an operation, one pointer a slot, and no memory of the allocator it measures.
//
//   file   := Plan | ThreadPlan × threads | LanePlan × lanes | padding to a chunk | chunk*
//   chunk  := 4096 words of 64 bits; a stream is a chain of chunks, linked by kNext
//   word   := bits 0..3 the operation, 4..31 a slot, 32..63 an argument
//             (kTouch, kSample: bits 4..63 are one number)
//
//   kMalloc, kCalloc    argument: size                 kFree                 —
//   kRealloc            argument: new size; a second word: bytes of the block that are touched already
//   kAligned            argument: size; a second word: alignment
//   kFreeSized          argument: size                 kUsable               —
// Before one of these may stand, in any order:
//   kTouch    only so many bytes of the block are to be touched (the program touched no more)
//   kWide     argument: the upper half of the size
//   kShared   the slot is one of the shared table; argument: its turn
// On their own:
//   kNext     argument: the stream's next chunk, counted from the first
//   kEpoch    argument: the epoch's number; in place of the slot: how many threads have a part in it
//   kSpawn, kJoin  argument: a thread
//   kSample   a reading is taken: so many nanoseconds of recorded time after the one before
//   kEnd      argument 1: the thread ends; 0: the trace ends, the thread was still there
//
// Order between threads. An object that only its maker uses is in its maker's own table: no order is needed. Every use of a
// shared slot has a turn, 0, 1, 2 …, over all objects that live in it one after the other; a use waits for its turn and then
// passes it on. That keeps 'made before used before freed' and makes it impossible to take one object for the next in the same
// slot. Epochs keep threads from drifting apart, or the peak of memory would be another: all of an epoch is done before the next
// begins; while one thread is alone its epoch goes on. Every wait is for something earlier in the trace, so none is for ever.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heapwright::replay {

using Word = std::uint64_t;

enum Op : std::uint8_t {
  kNext,
  kMalloc,
  kCalloc,
  kFree,
  kFreeSized,
  kRealloc,
  kUsable,
  kAligned,
  kTouch,
  kWide,
  kShared,
  kEpoch,
  kSpawn,
  kJoin,
  kSample,
  kEnd
};

inline constexpr std::uint64_t kOpsMagic = 0x3353504f54525748;  // "HWRTOPS3"
inline constexpr std::size_t kChunkWords = 4096;
inline constexpr std::size_t kChunkBytes = kChunkWords * sizeof(Word);
inline constexpr std::size_t kGroup = 8;  // words an operation has at most, with all that stands before it
inline constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 28;

constexpr Word word(Op op, std::uint64_t slot, std::uint64_t argument) {
  return Word{op} | slot << 4 | argument << 32;
}
constexpr Word long_word(Op op, std::uint64_t number) { return Word{op} | number << 4; }
constexpr unsigned op_of(Word w) { return static_cast<unsigned>(w & 15); }
constexpr std::uint64_t slot_of(Word w) { return static_cast<std::uint32_t>(w) >> 4; }
constexpr std::uint64_t argument_of(Word w) { return w >> 32; }
constexpr std::uint64_t number_of(Word w) { return w >> 4; }

struct Plan {
  std::uint64_t magic = kOpsMagic;
  std::uint64_t threads = 0;
  std::uint64_t lanes = 0;
  std::uint64_t shared_slots = 0;
  std::uint64_t first_chunk = 0;  // bytes from the start of the file
  std::uint64_t chunks = 0;
  std::uint64_t events = 0;        // calls of malloc and its kin
  std::uint64_t last_stretch = 0;  // nanoseconds, recorded, from the last reading to the end
  std::uint64_t readings = 0;      // without the one at the end
};

struct ThreadPlan {
  std::uint32_t chunk = 0;   // its first
  std::uint32_t lane = 0;    // the window and table it has; a lane is handed on when its thread has ended
  std::uint32_t ends = 0;    // 1 if it ends before the trace does
  std::uint32_t starts = 0;  // 0: a number that no event has; nobody starts it
};

struct LanePlan {
  std::uint64_t slots = 0;
};

}  // namespace heapwright::replay
