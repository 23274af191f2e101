// Reads and writes the traces of other tools: wl workloads in both directions (wl_format.h), and
// heaptrack's text. A reader returns every valid event; loss() counts the others.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "event.h"

namespace heapwright::trace {

// Opens a wl file. Returns nullptr, with one line in `error`, if it is not a wl file. The threads
// advance at the same rate, relative to the length of each, as far as the syncs allow. All times
// are 0.
std::unique_ptr<EventSource> open_wl(const std::string& path, std::string& error);

struct Exported {
  std::uint64_t events = 0;    // written as operations
  std::uint64_t left_out = 0;  // of kinds that the format lacks
};

// Writes a trace as a wl file, which appears when it is complete.
//
// source  the trace
// path    the file
// done    gets the counts of events
// error   gets one line if the file cannot be written
//
// Returns false if the file cannot be written.
bool write_wl(EventSource& source, const std::string& path, Exported& done, std::string& error);

// Reads heaptrack's text, as its library writes it (heaptrack --raw) or as heaptrack_interpret
// writes it (the content of its .zst and .gz files). The text has no threads, and a realloc is a
// free and a malloc. In the second form a free names only a size and a call stack; the reader takes
// the latest block of that kind. A line `!cut WHY` says that the text is truncated. Returns
// nullptr, with one line in `error`, if the text is not heaptrack's.
std::unique_ptr<EventSource> open_heaptrack(std::FILE* file, std::string& error);

}  // namespace heapwright::trace
