// Makes a trace ready for replay; ops.h says what comes out. Two passes: the first learns of each object whether it is used
// again, by whom, and how much of it is ever touched; the second writes. Memory: two bits an object, and a cell for each live one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "trace/event.h"

namespace heapwright::replay {

struct Expanded {
  std::uint64_t events = 0;  // calls of malloc and its kin
  std::uint64_t threads = 0;
  std::uint64_t lanes = 0;
  std::uint64_t epochs = 0;
  std::uint64_t own_slots = 0;  // of all lanes
  std::uint64_t shared_slots = 0;
  std::uint64_t dropped = 0;  // events about objects that are not there
  std::uint64_t peak_live_bytes = 0;
  std::uint64_t duration = 0;  // nanoseconds
  trace::Loss loss;
  std::string executable;              // of the program recorded; empty where that is not known
  std::vector<std::string> libraries;  // of a modelled one (trace/event.h)
};

using Opener = std::function<std::unique_ptr<trace::EventSource>(std::string& error)>;

// Writes under a temporary name, then renames. False with one line in `error`.
bool expand(const Opener& open, const std::string& path, Expanded& done, std::string& error);

}  // namespace heapwright::replay
