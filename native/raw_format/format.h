// The recorder's raw file, as it lies on disk; docs/trace-format.md draws it. Everything is little-endian.
//
//   | file header | block 0 | block 1 | block 2 | …      64 KiB each; the header fills a block's place of its own
//
// A block belongs to one writer (a thread borrows a writer while it lives) and can be decoded by itself:
//
//   | block header, 32 bytes | record | record | … | zeroes |
//
// A record begins with a tag that is never zero, and its tag is the last thing of it to be stored. So what a killed process
// leaves is whole records and then zeroes.
//
//   tag, kinds 1-6:   7-6    5      4-3     2-0
//                   | base | size | where | kind |       then: [stamp, 1 byte] [address, 1-4 bytes] [size, 1 or 2]
//   tag, kind 7:      7-3    2-0
//                   | what  | 7    |                     then: [length, 1 byte] [value, that many bytes]
//
//   stamp    after a kStamped: the clock goes on by this much before the event, 0-255 units; else the clock stands
//   address  zigzag of the difference to one of four bases, in units of 8 bytes; 'where' is 0-3 for 1-4 bytes
//            one further away has a kFar in front of it, and the difference 0
//   size     of kMalloc, kCalloc and kRealloc; 'size' is 0 or 1 for 1 or 2 bytes; what is above them is in a kLarge before it
//
// The bases are addresses that came before, 0 in the beginning of a block, and the encoder takes the nearest. If the
// difference fits two bytes that base becomes the address; otherwise the next in turn does, for this is a new place. So the
// bases settle where the program is busy: arenas, slabs of one size, what another thread gave away.
//
// A writer that is the only one stamps every 32nd event, by a kClock: its events are in order anyway. As soon as there is
// another one each event is stamped, because only stamps tell the order between writers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heapwright::raw {

inline constexpr std::uint64_t kFileMagic = 0x0a77617277616568;  // "heawraw\n"
inline constexpr std::uint32_t kVersion = 3;
inline constexpr std::uint32_t kBlockMagic = 0x6b6c6248;  // "Hblk"
inline constexpr std::size_t kBlockBytes = 64 * 1024;
inline constexpr std::size_t kAddressUnit = 8;
inline constexpr unsigned kBases = 4;
inline constexpr unsigned kEventsPerStamp = 32;  // events of an only writer for one stamp
// After so long without an event a writer asks how long its thread has waited for a processor: units of the clock, about 200
// microseconds.
inline constexpr std::uint64_t kPause = 20'000;

// Writers that threads keep, and some more for single events of who has none: a thread that is ending, a signal handler that
// came between.
inline constexpr std::uint32_t kThreadWriters = 4096;
inline constexpr std::uint32_t kSpareWriters = 32;
inline constexpr std::uint32_t kWriters = kThreadWriters + kSpareWriters;

enum class Tag : std::uint8_t {
  kEnd = 0,  // the whole byte is zero
  kMalloc,
  kCalloc,
  kRealloc,  // follows a kRelease: the object's new address and size
  kFree,
  kFreeSized,     // the size is the object's: another one would be an error of the program
  kReallocBegin,  // this address is about to be reallocated
  kOther,
};

enum class Other : std::uint8_t {
  // In front of what they are about.
  kClock = 1,     // the clock goes on by this many units
  kNewBase,       // the next base in turn is now this address, in units
  kStamped,       // from here to the end of the block each event has a stamp
  kSizeHighBits,  // of the kMalloc, kCalloc or kRealloc that follows: its size without the low 16 bits
  kThread,        // this thread has the writer from here on
  kAlignment,     // of the kMalloc that follows, as its logarithm
  kTouched,       // of the kFree, kFreeSized or kLive that follows: resident bytes
  // By themselves.
  kThreadStart,    // this thread has the writer from here on, and is new
  kThreadEnd,      // this thread ends
  kLive,           // a large block at this address is live as the process ends; 4 * zigzag + base
  kReallocFailed,  // the reallocation failed: the object stays where it is
  kReallocFreed,   // the reallocation was to size 0, and freed the object
  kUsableSize,     // address as above
  kFork,           // the child's process id
  kPhase,          // number in the header's table
  kResident,       // bytes
  kInternalBlock,  // a block that the allocator made for itself by calling malloc; address as above
  kWaited,  // nanoseconds that the thread was ready to run since the last of these, and another had the processor
};

enum class ClockKind : std::uint32_t { kTsc, kMonotonic };
// A unit of the clock is 32 ticks of the processor, or 8 nanoseconds of the monotonic clock.
inline constexpr unsigned kTicksShift = 5;
inline constexpr unsigned kNanosecondsShift = 3;

// How the recording of a process came to its end; kRunning in a file at rest: it was killed.
enum class Ending : std::uint32_t { kRunning, kExited, kReplaced, kStopped };

struct PhaseName {
  std::atomic<std::uint32_t> ready;
  char name[60];
};

inline constexpr std::uint32_t kMaxPhases = 256;

struct FileHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t block_bytes;
  ClockKind clock;
  std::uint32_t page_size;
  std::uint64_t pid;
  std::uint64_t parent;
  std::uint64_t start;              // seconds since 1970
  std::uint64_t resident_at_start;  // bytes
  std::uint64_t forked;             // 1: the process began as a copy and has memory of its parent's
  // Two moments on the clock and in nanoseconds; the second is brought up to date again and again.
  std::uint64_t first_stamp, first_ns;
  std::atomic<std::uint64_t> last_stamp, last_ns;
  std::atomic<std::uint64_t> blocks;   // claimed so far
  std::atomic<std::uint64_t> failed;   // calls that were refused memory
  std::atomic<std::uint32_t> threads;  // so far
  std::atomic<Ending> ending;
  std::atomic<std::uint32_t> error;   // kStopped: errno
  std::atomic<std::uint32_t> phases;  // places taken in the table
  char allocator[512];                // the library that malloc came from
  char executable[1024];
  std::uint32_t command_bytes;
  char command[16384];  // the words, each with a zero after it; cut where it is longer
  PhaseName phase[kMaxPhases];
};
static_assert(sizeof(FileHeader) <= kBlockBytes);
// src/heapwright/trace/record.py reads these.
static_assert(offsetof(FileHeader, pid) == 24 && offsetof(FileHeader, executable) == 640);

struct BlockHeader {
  std::uint32_t magic;  // stored last
  std::uint32_t writer;
  std::uint64_t sequence;  // of this writer's blocks, from 0
  std::uint64_t clock;     // where it stands as the block begins
  std::uint32_t thread;    // whose the first record is
  std::uint32_t reserved;
};
static_assert(sizeof(BlockHeader) == 32);

}  // namespace heapwright::raw
