#include "chunks.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace heapwright::replay {
namespace {

// Refuses a chunk that would make the player read or write outside of the lane's memory: a slot
// that its table does not have, an operation that is not complete, or no end. Also refuses a chunk
// that leads back, which would make the player play for ever. The check is here, so that the timed
// loop need not make it. The player checks shared slots itself.
void check_chunk(const Lane& lane, std::uint64_t chunk, std::size_t words) {
  constexpr unsigned kPrefixes = 1U << kTouch | 1U << kWide | 1U << kShared;
  constexpr unsigned kCalls = 1U << kMalloc | 1U << kCalloc | 1U << kFree | 1U << kFreeSized |
                              1U << kRealloc | 1U << kUsable | 1U << kFill | 1U << kAligned;
  const Word* at = lane.window;
  const Word* const end = at + words;
  for (bool has_prefix = false, is_shared = false; at < end; at++) {
    const unsigned op = op_of(*at);
    if ((kPrefixes >> op & 1) != 0) {
      has_prefix = true;
      is_shared = is_shared || op == kShared;
      continue;
    }
    if ((kCalls >> op & 1) != 0) {
      if (slot_of(*at) >= lane.slot_count && !is_shared) {
        die_of_bad_file("slot", slot_of(*at));
      }
      at += op == kFill ? 2 : op == kRealloc || op == kAligned ? 1 : 0;  // plain words follow
      has_prefix = is_shared = false;
    } else if (has_prefix) {
      die_of_bad_file("operation", op);
    } else if (op == kNext && *at != kStreamEnd && argument_of(*at) <= chunk) {
      die_of_bad_file("next chunk", argument_of(*at));
    } else if (op == kNext) {
      return;
    }
  }
  die_of_bad_file("a chunk has no end; its words:", words);
}

}  // namespace

void die_of_bad_file(const char* what, std::uint64_t number) {
  char line[128];  // NOLINT(modernize-avoid-c-arrays)
  (void)std::snprintf(line, sizeof line, "invalid operations file: %s ", what);
  die(line, number, "; make it again");
}

void read_chunk(const Replay& replay, std::uint64_t chunk, const Lane& lane) {
  Word* const window = lane.window;
  const auto place = static_cast<off_t>(replay.header.first_chunk + chunk * kChunkBytes);
  ssize_t got = 0;
  do {
    got = ::pread(replay.file, window, kChunkBytes, place);
  } while (got < 0 && errno == EINTR);
  if (got < static_cast<ssize_t>(sizeof(Word))) {
    die("the operations file ends too early, at chunk ", chunk, "; make it again");
  }
  check_chunk(lane, chunk, static_cast<std::size_t>(got) / sizeof(Word));
}

}  // namespace heapwright::replay
