// Defines the operations file: a trace as flat operations, one stream per thread, that
// heapwright-replay plays.
//
// heapwright-trace writes the file (expand.h) in a process of its own. It decides everything that
// takes time or memory: slots, sizes, the bytes to touch and the order between threads. The
// replayer only looks up a pointer and makes the call. It needs 8 bytes per operation in the file,
// one pointer per slot, and no memory of the allocator that it measures.
//
// An operation is one call of malloc or its kin, or one step of the replayer itself, such as
// waiting for other threads. A slot is a table entry with the address of one live block.
//
//   file   := OpsHeader | ThreadEntry × threads | LaneEntry × lanes | padding to a chunk | chunk*
//   chunk  := 4096 words of 64 bits; a stream is a chain of chunks, linked by kNext
//   word   := bits 0..3 the operation, 4..31 a slot, 32..63 an argument
//             (kTouch, kSample: bits 4..63 are one number)
//
// Calls:
//   kMalloc, kCalloc    argument: size
//   kAligned            argument: size; a second word: alignment
//   kRealloc            argument: new size; a second word: bytes of the block touched so far
//   kFree               no argument
//   kFreeSized          argument: size
//   kUsable             no argument
// Prefixes of a call, in any order:
//   kTouch    the replay touches only this many bytes of the block, as the program did
//   kWide     argument: the upper 32 bits of the size
//   kShared   the slot is in the table that all threads share; argument: the turn of this use
// Steps of the replayer:
//   kNext     argument: the next chunk of the stream; chunk 0 is the first of the file
//   kEpoch    argument: the number of the epoch; slot: how many threads take part in it
//   kSpawn    argument: the thread to start
//   kJoin     argument: the thread to wait for
//   kSample   take a reading of resident memory and CPU time; the number is the recorded time in
//             nanoseconds since the previous reading
//   kEnd      argument 1: the thread ends; 0: the trace ends while the thread still exists
//
// Two passes over a trace make the file. The first pass (survey.h) learns what needs a look ahead:
// which objects are used again, which are used by a second thread, and how much of each large block
// is ever touched. The second pass (expand.cpp) writes.
//
// How threads wait for each other:
// 1. If only one thread uses an object, its slot is in that thread's own table, and no thread
//    waits.
// 2. All uses of a shared slot have turns 0, 1, 2 … over all objects that live in the slot one
//    after the other. Each use waits for its turn, makes the call and sets the next turn. So every
//    object is allocated before it is used and used before it is freed, and no thread confuses an
//    object with the next one in the slot.
// 3. The threads of an epoch all finish it before the next epoch begins. Without epochs threads
//    would drift further apart than in the program, and the peak of memory would differ. An epoch
//    with one thread goes on until another thread takes part.
// Every wait is for an earlier event of the trace, so a replay cannot deadlock.
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
inline constexpr std::size_t kMaxOpWords = 8;  // words of one operation with all its prefixes, at most
inline constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 28;

constexpr Word word(Op op, std::uint64_t slot, std::uint64_t argument) {
  return Word{op} | slot << 4 | argument << 32;
}
constexpr Word long_word(Op op, std::uint64_t number) { return Word{op} | number << 4; }
constexpr unsigned op_of(Word w) { return static_cast<unsigned>(w & 15); }
constexpr std::uint64_t slot_of(Word w) { return static_cast<std::uint32_t>(w) >> 4; }
constexpr std::uint64_t argument_of(Word w) { return w >> 32; }
constexpr std::uint64_t number_of(Word w) { return w >> 4; }

// The front of the file.
struct OpsHeader {
  std::uint64_t magic = kOpsMagic;
  std::uint64_t threads = 0;
  std::uint64_t lanes = 0;
  std::uint64_t shared_slots = 0;
  std::uint64_t first_chunk = 0;  // bytes from the start of the file
  std::uint64_t chunks = 0;
  std::uint64_t events = 0;        // calls of malloc and its kin
  std::uint64_t last_stretch = 0;  // recorded nanoseconds from the last reading to the end of the trace
  std::uint64_t readings = 0;      // kSample operations; the reading at the end is not counted
};

struct ThreadEntry {
  std::uint32_t chunk = 0;   // the first of its stream
  std::uint32_t lane = 0;    // the lane it runs on
  std::uint32_t ends = 0;    // 1 if the thread ends before the trace does
  std::uint32_t starts = 0;  // 0 if no event has this thread number, so no thread is started
};

// A lane is the memory of one running thread: a chunk of its stream and its table of slots. When
// the thread has ended, another thread takes the lane over.
struct LaneEntry {
  std::uint64_t slots = 0;  // of its own table
};

}  // namespace heapwright::replay
