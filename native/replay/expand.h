// Makes a trace ready for replay: writes it as an operations file (ops.h), in two passes over the
// trace.
//
// Memory: two bits per object, an entry for each live object, and the events of one epoch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trace/event.h"

namespace heapwright::replay {

// Counts of the written file, and what could not be read of the trace.
struct Expanded {
  std::uint64_t events = 0;  // calls of malloc and the other allocation functions
  std::uint64_t threads = 0;
  std::uint64_t lanes = 0;
  std::uint64_t epochs = 0;
  std::uint64_t own_slots = 0;  // of all lanes
  std::uint64_t shared_slots = 0;
  std::uint64_t dropped = 0;  // events of objects that are not live: they are not replayed
  std::uint64_t peak_live_bytes = 0;
  std::uint64_t duration = 0;  // nanoseconds
  trace::Loss loss;
  std::string executable;              // of the recorded program; empty if unknown
  std::string allocator;               // that it was recorded on (trace/event.h)
  std::vector<std::string> libraries;  // that a modelled program loads (trace/event.h)
};

// Opens the trace from its start; nullptr and one line in `error` if that fails.
using Opener = std::function<std::unique_ptr<trace::EventSource>(std::string& error)>;

// Writes the file under a temporary name, then renames it.
//   open   opens the trace; called twice
//   path   of the operations file
//   done   receives the counts of the file
//   error  receives one line if the trace cannot be read or the file cannot be written; the result
//          is then false
bool expand(const Opener& open, const std::string& path, Expanded& done, std::string& error);

}  // namespace heapwright::replay
