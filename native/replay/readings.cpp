// Takes the readings of resident memory and of the clocks.
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "clock.h"
#include "player.h"

namespace heapwright::replay {

namespace {

// Returns bytes of this process: field 1 of statm is resident memory, field 2 its part in files.
std::uint64_t read_statm(const Replay& replay, int field) {
  char text[128];  // NOLINT(modernize-avoid-c-arrays)
  const ssize_t got = ::pread(replay.statm, text, sizeof text - 1, 0);
  text[got < 0 ? 0 : got] = '\0';
  const char* at = text;
  for (; field > 0 && at != nullptr; field--) {
    at = std::strchr(at, ' ');
    at = at == nullptr ? nullptr : at + 1;
  }
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10) * replay.page;
}

}  // namespace

Reading read_now(const Replay& replay, std::uint64_t recorded) {
  return {recorded, read_statm(replay, 1), kernel_clock(CLOCK_PROCESS_CPUTIME_ID),
          kernel_clock(CLOCK_MONOTONIC)};
}

std::uint64_t resident_files(const Replay& replay) { return read_statm(replay, 2); }

}  // namespace heapwright::replay
