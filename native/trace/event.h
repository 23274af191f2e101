// What a trace is made of, whatever form it is kept in: the recorder's raw files, the packed file, another tool's format, or a
// model that makes events up. Whoever reads a trace sees a stream of Event in one order; whoever writes one is handed the same.
//
// The order is a possible one: for every object its making comes before each use and its end comes last, so an address that was
// freed is never handed out before. Events of one thread keep their own order.
//
// An object keeps its id through realloc: a chain of reallocs is one object that changes its size. realloc(NULL, n) is recorded as
// malloc, realloc(p, 0) that frees as free, and a call that failed not at all (the summary counts it). free(NULL) is not an event.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace heapwright::trace {

enum class Kind : std::uint8_t {
  kMalloc = 1,   // object, size
  kCalloc,       // object, size (the product): the memory was asked for as zeroes
  kAligned,      // object, size, alignment: memalign and all its kin
  kRealloc,      // object (known), size: its new size
  kFree,         // object; touched where known
  kFreeSized,    // object, size as the caller said
  kUsableSize,   // object: the program asked how much it really has, and may use that
  kThreadStart,  // thread
  kThreadEnd,    // thread
  kFork,         // value: the child's process id
  kPhase,        // value: the mark's number in Header::phases
  kResident,     // value: resident memory of the process in bytes
  kTouched,      // object, touched: of a large block that is live when the process ends
};

inline constexpr std::uint64_t kUnknown = ~std::uint64_t{0};

struct Event {
  Kind kind = Kind::kMalloc;
  std::uint32_t thread = 0;  // counted from 0 in the order they first appear
  std::uint64_t time = 0;    // nanoseconds since the trace began; never falls within a thread
  // Counted from 0 in the order of making: a making event's object is the number of those made before.
  std::uint64_t object = 0;
  std::uint64_t size = 0;       // bytes asked for
  std::uint64_t alignment = 0;  // bytes, a power of two; 0 where none was asked for
  // kFree of a large block, kTouched: how much of it was resident, in bytes.
  std::uint64_t touched = kUnknown;
  std::uint64_t value = 0;

  bool operator==(const Event&) const = default;
};

constexpr bool is_allocation(Kind kind) {
  return kind == Kind::kMalloc || kind == Kind::kCalloc || kind == Kind::kAligned;
}
constexpr bool is_free(Kind kind) { return kind == Kind::kFree || kind == Kind::kFreeSized; }

// What a file says a page's size is, if that can be; the usual one otherwise: it is divided by.
constexpr std::uint64_t page_size_of(std::uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= 1024 && bytes <= (std::uint64_t{1} << 21) ? bytes : 4096;
}

// What is known about a trace as a whole.
struct Header {
  std::vector<std::string> command;  // as the process was started
  std::string executable;
  std::string allocator;  // the malloc it ran on, a path or 'glibc 2.36'
  std::uint64_t pid = 0;
  std::uint64_t parent = 0;
  std::uint64_t start = 0;  // seconds since 1970
  std::uint64_t page_size = 4096;
  std::uint64_t resident_at_start =
      0;  // bytes, before the program's own first allocation; 0 where it is not known
  std::vector<std::string> phases;
  bool synthetic = false;  // made by a model, not recorded
  // Libraries that allocators may bring along and the modelled program has anyway; only where `synthetic`, else the executable tells.
  std::vector<std::string> libraries;
};

// What a reader could not read; all zero for a whole trace. Losses are bytes to people, never passed over.
struct Loss {
  std::uint64_t bytes = 0;  // that could not be decoded
  std::uint64_t events =
      0;  // known to be missing, or dropped for they made no sense (a free of nothing known)
  std::uint64_t failed_calls = 0;  // allocations the program was refused
  bool cut_short = false;          // no proper end: the process was killed, or the file was truncated
  std::string why;                 // one line for people, empty where nothing was lost
};

// A stream of events in trace order.
class EventSource {
 public:
  EventSource() = default;
  EventSource(const EventSource&) = delete;
  EventSource& operator=(const EventSource&) = delete;
  virtual ~EventSource() = default;

  virtual const Header& header() const = 0;
  // The next event; false at the end. Trouble ends the stream early and is then in loss().
  virtual bool next(Event& event) = 0;
  virtual Loss loss() const = 0;
};

}  // namespace heapwright::trace
