// Defines the events of a trace, independent of its form: the recorder's raw file, the packed file,
// another tool's format, or a model that draws events. Every reader returns a stream of Event in
// one order, and every writer takes such a stream.
//
// The order is one that is possible: the allocation of an object comes before each use of it, and
// its free comes last. Events of one thread keep their order.
//
// An object keeps its id through realloc: a chain of reallocs is one object that changes its size.
// realloc(NULL, n) is a malloc, and a realloc(p, 0) that frees is a free. A failed call is no
// event; Loss::failed_calls counts it. free(NULL) is no event.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace heapwright::trace {

enum class Kind : std::uint8_t {
  kMalloc = 1,   // object, size
  kCalloc,       // object, size (the product)
  kAligned,      // object, size, alignment: memalign and its variants
  kRealloc,      // object (known), size: its new size
  kFree,         // object; touched if known
  kFreeSized,    // object, size as the caller gave it
  kUsableSize,   // object: the program asked for its usable size, and may use all of it
  kThreadStart,  // thread
  kThreadEnd,    // thread
  kFork,         // value: the child's process id
  kPhase,        // value: the mark's number in Header::phases
  kResident,     // value: resident memory of the process in bytes
  kTouched,      // object, touched: a large block that is live when the process exits
  // Only in a sample (Header::sample). value: how many allocations and reallocs (ticks) the thread
  // has made since its last kTicks or its start. It stands before an event of the thread, or before
  // its end or the end of the trace, and counts all ticks before that event; a tick of that event
  // itself is counted by the next kTicks. If there is no tick to count, kTicks may be left out.
  kTicks,
  // Before a kResident by the same thread, its parts: kUntouched and kHeap sometimes, kFiles
  // always.
  kUntouched,  // value: bytes of live large blocks that were not resident
  kHeap,       // value: resident bytes of malloc's memory
  kFiles,      // value: resident bytes of files and shared memory
  // value: the number of the thread that this one creates. It may be missing for a thread.
  kSpawn,
  // By thread 0, as the last event: the process was killed, ended without exit(), called exec or
  // was still running at this time. Without it such a trace would end at its last call.
  kEnd,
  // object, touched: a large block of which the program has touched only so many bytes until now.
  // By the thread that allocated it. A replay touches a block without such events when it is new.
  kTouchedSoFar,
};
inline constexpr Kind kLastKind = Kind::kTouchedSoFar;

inline constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
// Blocks from this size on can have touched bytes.
inline constexpr std::uint64_t kLargeBlock = 65536;

struct Event {
  Kind kind = Kind::kMalloc;
  std::uint32_t thread = 0;  // counted from 0 in the order they are created or first appear
  std::uint64_t time = 0;    // nanoseconds since the trace began; never decreases within a thread
  // Counted from 0 in the order of allocation.
  std::uint64_t object = 0;
  std::uint64_t size = 0;       // bytes that the program asked for
  std::uint64_t alignment = 0;  // bytes, a power of two; 0 for malloc and calloc
  // kFree of a large block, kTouched, kTouchedSoFar: how many of its bytes were resident.
  std::uint64_t touched = kUnknown;
  std::uint64_t value = 0;

  bool operator==(const Event&) const = default;
};

constexpr bool is_allocation(Kind kind) {
  return kind == Kind::kMalloc || kind == Kind::kCalloc || kind == Kind::kAligned;
}
// Whether an event has only a value.
constexpr bool has_value(Kind kind) {
  return (kind >= Kind::kFork && kind <= Kind::kResident) || (kind >= Kind::kTicks && kind <= Kind::kSpawn);
}
constexpr bool is_free(Kind kind) { return kind == Kind::kFree || kind == Kind::kFreeSized; }
// A tick: a request for memory.
constexpr bool is_tick(Kind kind) { return is_allocation(kind) || kind == Kind::kRealloc; }
// Whether an event uses an object that was allocated earlier.
constexpr bool uses_object(Kind kind) {
  return kind == Kind::kRealloc || is_free(kind) || kind == Kind::kUsableSize || kind == Kind::kTouched ||
         kind == Kind::kTouchedSoFar;
}

// The page size of a trace whose file states none: that of x86-64.
inline constexpr std::uint64_t kUnstatedPageBytes = 4096;

// Returns the page size that a file states, if it is a valid one, else kUnstatedPageBytes. Callers
// divide by it.
constexpr std::uint64_t page_size_of(std::uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= 1024 && bytes <= (std::uint64_t{1} << 21)
             ? bytes
             : kUnstatedPageBytes;
}

// Facts about a trace as a whole.
struct Header {
  std::vector<std::string> command;  // as the process was started
  std::string executable;
  std::string allocator;  // the malloc it ran on, a path or 'glibc 2.36'
  std::uint64_t pid = 0;
  std::uint64_t parent = 0;
  std::uint64_t start = 0;  // seconds since 1970
  std::uint64_t page_size = kUnstatedPageBytes;
  // Bytes before the first allocation of the program; 0 if it is not known.
  std::uint64_t resident_at_start = 0;
  std::vector<std::string> phases;
  bool synthetic = false;  // made by a model, not recorded
  // Libraries that the modelled program loads anyway, so that an allocator that needs one adds
  // nothing. Only if `synthetic`; for a recorded trace they are read from the executable.
  std::vector<std::string> libraries;
  // Whether the process began as a fork of a recorded process, with blocks of its parent. Unknown
  // in traces without kFiles.
  std::optional<bool> forked;
  // Whether kSpawn events may be in the trace.
  bool spawns = false;
  // Whether a kEnd may be in the trace.
  bool ends = false;
  // Whether kTouchedSoFar events may be in the trace.
  bool fills = false;
  // The rate of a sample: one small object in so many is in the trace, with all its events
  // (sample.h). 0: the trace has all objects.
  std::uint64_t sample = 0;
  // A file that states a higher rate is damaged: hardly a program has so many objects.
  static constexpr std::uint64_t kMaxSample = std::uint64_t{1} << 40;
  // Whether an object that was not chosen at its allocation is chosen later with the chance of its
  // largest size, and appears as an allocation at that realloc. If so, the weight of an object is
  // that of its largest size so far; otherwise that of its size at allocation.
  bool sample_growth = false;
  // The recorded window in seconds since the process began, if only a window was recorded. Then the
  // objects that were live at its start come first, as allocations at time 0 in the order of their
  // allocation, and after them a phase mark named 'window'.
  std::optional<double> window_begin;
  std::optional<double> window_end;
};

// The parts of a trace that a reader could not read; all zero for a complete trace. Every tool
// reports losses to its user.
struct Loss {
  std::uint64_t bytes = 0;  // that could not be decoded
  // Events that are missing, or dropped because they are impossible, such as a free of an unknown
  // address.
  std::uint64_t events = 0;
  std::uint64_t failed_calls = 0;  // allocations that failed in the program
  bool cut_short = false;          // the process was killed, or the file is truncated
  std::string why;                 // one line for the user, empty if nothing was lost
};

// A stream of events in trace order.
class EventSource {
 public:
  EventSource() = default;
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;
  virtual ~EventSource() = default;

  virtual const Header& header() const = 0;
  // Reads the next event; false at the end. An error ends the stream early and is then in loss().
  virtual bool next(Event& event) = 0;
  virtual Loss loss() const = 0;
};

}  // namespace heapwright::trace
