// States what is missing in a raw file, for the user.
#pragma once

#include <cstdint>

#include "raw_format/format.h"
#include "trace/event.h"

namespace heapwright::trace {

struct RawLoss {
  std::uint64_t events = 0;  // impossible ones
  std::uint64_t bytes = 0;   // that could not be decoded
  std::uint64_t blocks = 0;  // missing
  bool truncated = false;
  std::uint64_t inherited = 0;  // frees and reallocs of memory that a forked process has from its parent
};

Loss describe_loss(const raw::FileHeader& raw, const RawLoss& lost);

}  // namespace heapwright::trace
