// Defines the operations file: a trace compiled into operations, one stream for each thread.
// heapwright-replay plays it.
//
// heapwright-trace writes the file (expand.h), in another process than the replay, so that nothing
// of that work is measured. It decides slots, sizes, the bytes to touch and the order between
// threads. The replayer follows the operations. It allocates no memory while it plays: windows onto
// the streams and the tables of slots are mapped before.
//
// Terms:
//   object      one block, from its allocation to its free; a realloc does not end it
//   slot        an entry of a table, with the address of the live block of one object at a time
//   lane        the memory of one running thread: a window onto its stream (one chunk, read from
//               the file) and its own table of slots. A thread that starts waits for its lane until
//               the thread before has ended; that thread's objects are then no longer used
//   epoch       a part of the trace with at most 4096 events, in which live bytes can grow by about
//               1/256 of their peak at most, or 64 KiB if that is more (expand.cpp). The threads that
//               have events in it take part
//   reading     one measurement of resident memory and CPU time, between two epochs
//
//   file   := OpsHeader | ThreadEntry × threads | LaneEntry × lanes | padding | chunk*
//             (first_chunk says where the chunks begin; numbers are in the machine's byte order)
//   chunk  := 4096 words of 64 bits; a stream is a chain of chunks, linked by kNext
//   word   := bits 0..3 the opcode, 4..31 a slot, 32..63 an argument
//             (kTouch, kClock: bits 4..63 are one number)
//
// An operation is a call with its prefixes, or a step. All its words are in one chunk; kNext comes
// as soon as kMaxOpWords more words might not fit.
//
// Calls. The slot holds the block: a call that allocates stores its address there, others read it.
//   kMalloc, kCalloc    argument: size (of calloc the product)
//   kAligned            argument: size; a second, plain word: alignment. Alignment 0: a malloc of
//                       the program's libstdc++, left out if the replay's process has libstdc++
//   kRealloc            argument: new size; a second, plain word: bytes of the block touched before
//   kFree               no argument
//   kFreeSized          argument: size
//   kUsable             malloc_usable_size; no argument
//   kFill               no call, only touching: the program fills the block in steps. Two more, plain
//                       words: the bytes of the block touched before, and those touched now
// Prefixes of a call, in any order, each at most once (kFill has only kShared):
//   kTouch    The replayer touches only this many bytes of the block. Otherwise it touches all
//             bytes of a new block, and the new bytes of a resized one, right after the call (a
//             byte in each page, see Touch in player.h).
//   kWide     argument: the upper 32 bits of the size
//   kShared   The slot of the call is in the table that all threads share. argument: the turn of
//             this use, modulo 2^32
// Steps of the replayer:
//   kNext     argument: the next chunk of the stream, whose number is higher; 0: the stream ends
//   kEpoch    begins an epoch. argument: its number; slot field: how many threads take part in it
//   kSpawn    argument: the thread to start, an index of ThreadEntry. Thread 0 is the main thread
//   kJoin     argument: the thread to wait for
//   kClock    sets the time that the allocator sees (clock.h). The number is the recorded time in
//             nanoseconds since the trace began, times 2; plus 1 if the replayer takes a reading
//
// Two passes over a trace make the file. The first pass (survey.h) collects facts that lie later in
// the trace: whether an object has further events, whether a second thread uses it, and how much of
// each large block is ever touched. The second pass (expand.cpp) writes.
//
// How threads wait for each other:
// 1. If only one thread uses an object, its slot is in that thread's own table, and no thread
//    waits.
// 2. A shared slot has a counter. A use is a call, or a kFill, with that slot. The uses are
//    numbered 0, 1, 2 …, across all objects that occupy the slot one after the other. Each use waits
//    until the counter is its turn, makes the call, and adds 1 to the counter. So every object is
//    allocated before it is used and used before it is freed.
// 3. At kEpoch a thread leaves its previous epoch, and waits until all participants of all earlier
//    epochs have left theirs. Without epochs threads would drift further apart than in the program,
//    and the peak of memory would differ. If one thread alone takes part in several epochs in a
//    row, only the first has a kEpoch. A thread without events in an epoch does not wait for it.
// 4. kJoin waits for the end of a thread, kSpawn for its lane.
// A trace is one sequence of events, and every wait is for an event that is earlier in it. So a
// replay cannot deadlock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heapwright::replay {

using Word = std::uint64_t;

// Zeroes are no end of a chunk, so a chunk that was not written is refused.
enum Op : std::uint8_t {
  kMalloc,
  kCalloc,
  kFree,
  kFreeSized,
  kRealloc,
  kUsable,
  kFill,
  kAligned,
  kTouch,
  kWide,
  kShared,
  kEpoch,
  kSpawn,
  kJoin,
  kClock,
  kNext
};

inline constexpr std::uint64_t kOpsMagic = 0x3753504f54525748;  // "HWRTOPS7"
inline constexpr std::size_t kChunkWords = 4096;
inline constexpr std::size_t kChunkBytes = kChunkWords * sizeof(Word);
// Words of an operation with its clock and the end behind it: at most 7.
inline constexpr std::size_t kMaxOpWords = 8;
// Slots of one table; a trace that needs more is refused.
inline constexpr std::uint64_t kMaxSlots = std::uint64_t{1} << 28;

// A word. The caller makes sure that slot and argument fit into their bits.
constexpr Word word(Op op, std::uint64_t slot, std::uint64_t argument) {
  return Word{op} | slot << 4 | argument << 32;
}
constexpr Word long_word(Op op, std::uint64_t number) { return Word{op} | number << 4; }
constexpr Word clock_word(std::uint64_t nanoseconds, bool reading) {
  return long_word(kClock, nanoseconds << 1 | std::uint64_t{reading});
}
constexpr unsigned op_of(Word w) { return static_cast<unsigned>(w & 15); }
constexpr std::uint64_t slot_of(Word w) { return static_cast<std::uint32_t>(w) >> 4; }
constexpr std::uint64_t argument_of(Word w) { return w >> 32; }
constexpr std::uint64_t number_of(Word w) { return w >> 4; }
// The last word of a stream.
inline constexpr Word kStreamEnd = word(kNext, 0, 0);

// The front of the file.
struct OpsHeader {
  std::uint64_t magic = kOpsMagic;
  std::uint64_t threads = 0;
  std::uint64_t lanes = 0;
  std::uint64_t shared_slots = 0;
  std::uint64_t first_chunk = 0;  // bytes from the start of the file
  std::uint64_t chunks = 0;
  std::uint64_t events = 0;        // calls
  std::uint64_t last_stretch = 0;  // recorded nanoseconds from the last reading to the end of the trace
  std::uint64_t readings = 0;      // kClock operations with a reading; the one at the end is not counted
};

struct ThreadEntry {
  std::uint32_t chunk = 0;   // the first of its stream
  std::uint32_t lane = 0;    // the lane it runs on
  std::uint32_t ends = 0;    // 1 if the thread ends before the trace does
  std::uint32_t starts = 0;  // 1 if the replayer starts this thread; thread numbers without events have 0
};

struct LaneEntry {
  std::uint64_t slots = 0;  // of its own table: the largest number that any of its threads needs
};

}  // namespace heapwright::replay
