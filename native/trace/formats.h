// Other tools' traces: wl workloads in and out (wl_format.h), heaptrack's text in. Readers make an EventSource of what they can
// make sense of; the rest is in loss().
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "event.h"

namespace heapwright::trace {

// A wl file. nullptr with a line in `error` for what is none. Order of threads: each is played as far, in parts of its whole
// length, as the others, but for what the syncs forbid. Times are all 0.
std::unique_ptr<EventSource> open_wl(const std::string& path, std::string& error);

struct Exported {
  std::uint64_t events = 0;    // written as operations
  std::uint64_t left_out = 0;  // of kinds the format does not have
};

// Writes a trace as a wl file, under a temporary name that is then renamed.
bool write_wl(EventSource& source, const std::string& path, Exported& done, std::string& error);

// heaptrack's text, as its library writes it (heaptrack --raw) or as heaptrack_interpret does (what is in its .zst and .gz). It
// knows no threads, a realloc is a free and a malloc, and in the second form a free only says what kind of block it is: the
// latest of that kind is taken. A line `!cut WHY` says that the text was cut short.
std::unique_ptr<EventSource> open_heaptrack(std::FILE* file, std::string& error);

}  // namespace heapwright::trace
