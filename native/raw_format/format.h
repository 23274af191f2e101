// Defines the layout of the recorder's raw file; docs/trace-format.md draws it. All numbers are
// little-endian.
//
//   | file header | raw block 0 | raw block 1 | raw block 2 | …      64 KiB each
//
// A raw block belongs to one writer and can be decoded by itself. A thread keeps one writer while
// it lives. In comments, 'block' alone is a raw block where records and writers are meant, and a
// block of memory where addresses and sizes are.
//
//   | block header, 32 bytes | record | record | … | zeroes |
//
// A record begins with a tag that is never zero, and the tag is stored last. So a killed process
// leaves complete records, and behind them a zero instead of a tag.
//
//   tag, kinds 1-6:   7-6    5      4-3     2-0         then: [stamp, 1 byte] [address, 1-4 bytes]
//                   | base | size | where | kind |            [size, 1 or 2 bytes]
//   tag, kind 7:      7-3     2-0
//                   | Other | 7 |                     then: [length, 1 byte] [value, so many bytes]
//
//   stamp    only behind a kStamped record of the block: the units of the clock that pass before
//            this event, 0-255; without stamps the clock stands still
//   address  zigzag of the difference to one of four bases, in units of 8 bytes; 'where' is 0-3 for
//            1-4 bytes; an address further away has a kNewBase record in front and the difference 0
//   size     of kMalloc, kCalloc and kRealloc; 'size' is 0 or 1 for 1 or 2 bytes; a kSizeHighBits
//            record in front holds the higher bits
//
// The four bases are earlier addresses, 0 at the beginning of a raw block, and the encoder uses the
// nearest one. If the difference fits in two bytes, the address replaces that base. Otherwise it
// replaces the next base in turn. So the bases settle at the places that the program uses most,
// such as arenas, slabs of one size class, or the blocks that another thread allocated.
//
// While there is only one writer, it writes a kClock record at every 32nd event, because its events
// are in order anyway. As soon as there is a second writer, every event has a stamp, because only
// stamps tell the order between writers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace heapwright::raw {

inline constexpr std::uint64_t kFileMagic = 0x0a77617277616568;  // "heawraw\n"
inline constexpr std::uint32_t kVersion = 8;
inline constexpr std::uint32_t kBlockMagic = 0x6b6c6248;  // "Hblk"
inline constexpr std::size_t kBlockBytes = std::size_t{64} << 10;
inline constexpr std::size_t kAddressUnit = 8;
inline constexpr unsigned kBases = 4;
inline constexpr unsigned kEventsPerStamp = 32;  // for the only writer of a process
// After this long without an event, a writer records how long its thread has waited for a
// processor. In units of the clock, about 200 microseconds.
inline constexpr std::uint64_t kPause = 20'000;

// The writers that threads keep, and spare writers for single events of a thread that cannot use
// one: it is exiting, or a signal handler has interrupted the recorder.
inline constexpr std::uint32_t kThreadWriters = 4096;
inline constexpr std::uint32_t kSpareWriters = 32;
inline constexpr std::uint32_t kWriters = kThreadWriters + kSpareWriters;

// Recordings of samples. Every chosen object has a level: it belongs to the samples of rate N << k
// for k up to its level. All records of an object are in raw blocks of its level. To thin the
// sample by half, the recorder drops the raw blocks of the lowest level. A writer belongs to one
// level and serves one event of any thread at a time.
inline constexpr std::uint32_t kLevels = 48;
inline constexpr std::uint32_t kWritersPerLevel = 8;
inline constexpr std::uint32_t kBornWriters = kLevels * kWritersPerLevel;  // then one a level for kBorn

enum class Tag : std::uint8_t {
  kEnd = 0,  // the whole byte is zero
  kMalloc,
  kCalloc,
  kRealloc,  // follows a kReallocBegin: the object's new address and size
  kFree,
  kFreeSized,     // has no size: the program must pass the size of the object
  kReallocBegin,  // this address is about to be reallocated
  kOther,
};

enum class Other : std::uint8_t {
  // Prefixes: they describe the records that follow.
  kClock = 1,     // this many units of the clock pass
  kNewBase,       // the next base in turn is now this address, in units of kAddressUnit
  kStamped,       // each event from here to the end of the block has a stamp
  kSizeHighBits,  // of the kMalloc, kCalloc or kRealloc that follows: its size without the low 16 bits
  kThread,        // the records that follow are of this thread
  kAlignment,     // of the kMalloc that follows, as its logarithm
  kTouched,       // of the kFree, kFreeSized, kLive or kFilling that follows: its resident bytes
  // Records by themselves.
  kThreadStart,    // the records that follow are of this thread, which is new
  kThreadEnd,      // this thread exits
  kLive,           // a large block at this address is live as the process exits; 4 * zigzag + base
  kReallocFailed,  // the reallocation failed: the object stays as it is
  kReallocFreed,   // the reallocation was to size 0 and freed the object
  kUsableSize,     // malloc_usable_size; the address as in kLive
  kFork,           // the process id of the child
  kPhase,          // the number of a phase in the header's table
  kResident,       // resident bytes of the process
  kInternalBlock,  // a block that the allocator got for itself by malloc; the address as in kLive
  kWaited,         // nanoseconds since the last kWaited that the thread was ready to run but had no processor
  // Before a kResident, its parts: kUntouched and kHeap sometimes, kFiles always.
  kUntouched,  // bytes of live large blocks that are not resident
  kHeap,       // resident bytes of malloc's memory
  kFiles,      // resident bytes of files and shared memory
  // Prefixes in recordings of samples and windows.
  // 2 times the ticks of the thread before this record, since its first; 1 more if it made some of
  // them before the window.
  kTicks,
  kBorn,  // of a kMalloc or kCalloc: the object was live when the window began; its rank by birth
  // A record by itself, only in complete recordings.
  kSpawn,  // this thread is about to create the thread of this number
  // A record by itself, only in complete recordings: the program has touched only a part of the
  // large block at this address so far; the address as in kLive.
  kFilling,
};
inline constexpr Other kLastOther = Other::kFilling;

// NOLINTNEXTLINE(performance-enum-size): 32 bits in the file
enum class ClockKind : std::uint32_t { kTsc, kMonotonic };
// A unit of the clock is 32 ticks of the processor, or 8 nanoseconds of the monotonic clock.
inline constexpr unsigned kTicksShift = 5;
inline constexpr unsigned kNanosecondsShift = 3;

// How the recording ended. A file that still says kRunning after the process is gone was killed.
// NOLINTNEXTLINE(performance-enum-size): 32 bits in the file
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
  std::uint64_t forked;             // 1: a fork of a recorded process, with blocks of its parent
  // Two moments, each in units of the clock and in nanoseconds. The second is updated during the
  // run.
  std::uint64_t first_stamp, first_ns;
  std::atomic<std::uint64_t> last_stamp, last_ns;
  std::atomic<std::uint64_t> blocks;   // number of raw blocks so far
  std::atomic<std::uint64_t> failed;   // number of calls that got no memory
  std::atomic<std::uint32_t> threads;  // number of threads so far
  std::atomic<Ending> ending;
  std::atomic<std::uint32_t> error;   // kStopped: errno
  std::atomic<std::uint32_t> phases;  // number of phases in the table
  char allocator[512];                // the library of the real malloc
  char executable[1024];
  std::uint32_t command_bytes;
  char command[16384];  // the words, each with a zero after it; cut off if longer
  PhaseName phase[kMaxPhases];
  // Of a recording of a sample or a window; 0 in complete ones. One small object in sample <<
  // min_level is in the file; raw blocks of lower levels do not count any more.
  std::uint64_t sample;
  std::atomic<std::uint64_t> min_level;
  // The window: nanoseconds of the monotonic clock, 0 if it has not begun or ended.
  std::atomic<std::uint64_t> window_begin_ns, window_end_ns;
  std::atomic<std::uint64_t> window_begin_stamp;
  std::uint64_t windowed;  // 1: only a window is recorded
  // When the process ended or called exec: nanoseconds of the monotonic clock, 0 if unknown. For a
  // process that still runs, the time of packing. The process may be killed, so heapwright writes
  // this, not the recorder (src/heapwright/trace/process_ends.py).
  std::atomic<std::uint64_t> end_ns;
  // Of a recording of a sample: ticks of threads that have ended. A thread counts at 1 + k if k is
  // the highest level of the objects that it allocated or freed, and at 0 if it has recorded
  // nothing. So all ticks up to the index min_level are of threads that are not in the file.
  std::atomic<std::uint64_t> ended_ticks[kLevels + 1];
  // When the process started, in clock ticks since the machine did; 0 if unknown. exec keeps it,
  // but another process with the same id has another one.
  std::uint64_t process_start;
};
static_assert(sizeof(FileHeader) <= kBlockBytes && kBornWriters + kLevels <= kThreadWriters);
// src/heapwright/trace/raw_files.py reads these.
static_assert(offsetof(FileHeader, pid) == 24 && offsetof(FileHeader, executable) == 640 &&
              offsetof(FileHeader, command) == 1668 && offsetof(FileHeader, sample) == 34440);
// src/heapwright/trace/process_ends.py reads or writes these.
static_assert(offsetof(FileHeader, ending) == 116 && offsetof(FileHeader, end_ns) == 34488);

struct BlockHeader {
  std::uint32_t magic;  // stored last
  std::uint32_t writer;
  std::uint64_t sequence;  // among this writer's blocks, from 0
  std::uint64_t clock;     // at the beginning of the block
  std::uint32_t thread;    // that makes the first record
  std::uint32_t level;     // of a sample's objects; 0 in complete recordings
};
static_assert(sizeof(BlockHeader) == 32);

}  // namespace heapwright::raw
