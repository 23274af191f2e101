// Writes records into a block: the part of the recorder that runs at every call. No system call, no lock, no branch that
// depends on the values but for stamps that are far apart.
//
// The caller makes sure that there is room (kMaxEventBytes bytes before Stream::limit's true end), says what time it is, and is the
// only one who writes to the stream.
#pragma once

#include <bit>
#include <cstring>

#include "raw_format/bases.h"
#include "raw_format/format.h"

namespace heapwright::recorder {

using namespace raw;  // NOLINT(google-build-using-namespace): the recorder writes this format

// The most that one event can take, with its clock, its prefixes and what the last 8-byte store runs over.
inline constexpr std::size_t kMaxEventBytes = 128;

struct Stream {
  std::uint8_t* at = nullptr;     // the next record goes here; zeroes from here on
  std::uint8_t* limit = nullptr;  // below it there is room for one more event
  std::uint64_t clock = 0;
  bool stamped = false;  // in this block, from here on
  Bases bases;
};

[[gnu::always_inline]] inline void compiler_barrier() { asm volatile("" ::: "memory"); }

namespace detail {

[[gnu::always_inline]] inline void store(std::uint8_t* where, std::uint64_t value) {
  std::memcpy(where, &value, 8);
}

}  // namespace detail

[[gnu::noinline]] inline void put_other(Stream& stream, Other what, std::uint64_t value) {
  const auto length = (static_cast<unsigned>(std::bit_width(value)) + 7) / 8;
  std::uint8_t* const at = stream.at;
  detail::store(at + 2, value);
  at[1] = static_cast<std::uint8_t>(length);
  compiler_barrier();
  at[0] = static_cast<std::uint8_t>(static_cast<unsigned>(Tag::kOther) | static_cast<unsigned>(what) << 3);
  stream.at = at + 2 + length;
}

inline void put_other_address(Stream& stream, Other what, std::uint64_t address) {
  const std::uint64_t unit = address / kAddressUnit;
  const Distance distance = stream.bases.nearest(unit);
  stream.bases.update(distance, unit);
  put_other(stream, what, distance.zigzag * kBases + distance.base);
}

// Brings the clock to `now` by a record of its own. A clock that seems to go back stands.
[[gnu::noinline]] inline void put_clock(Stream& stream, std::uint64_t now) {
  if (now > stream.clock) {
    put_other(stream, Other::kClock, now - stream.clock);
    stream.clock = now;
  }
}

// One event of kinds 1-6; the clock goes on by `step`: at most 255, and 0 where the stream is not stamped. `has_size` for kMalloc,
// kCalloc, kRealloc.
template <bool has_size>
[[gnu::always_inline]] inline void put_event(Stream& stream, Tag kind, std::uint64_t address,
                                             std::uint64_t size, std::uint64_t step = 0) {
  const std::uint64_t unit = address / kAddressUnit;
  Distance distance = stream.bases.nearest(unit);
  if (__builtin_expect(distance.zigzag > 0xffff'ffff, 0)) {
    put_other(stream, Other::kNewBase, unit);
    distance = stream.bases.replace_next(unit);
  } else {
    stream.bases.update(distance, unit);
  }
  if (has_size && __builtin_expect(size > 0xffff, 0)) {
    put_other(stream, Other::kSizeHighBits, size >> 16);
    size &= 0xffff;
  }
  std::uint8_t* const begin = stream.at;
  std::uint8_t* at = begin + 1;
  auto tag = static_cast<unsigned>(kind) | distance.base << 6;
  if (stream.stamped) {
    *at++ = static_cast<std::uint8_t>(step);
  }
  const std::uint64_t apart = distance.zigzag;
  const unsigned where = unsigned{apart > 0xff} + unsigned{apart > 0xffff} + unsigned{apart > 0xff'ffff};
  detail::store(at, apart);
  at += where + 1;
  tag |= where << 3;
  if constexpr (has_size) {
    const unsigned wide = unsigned{size > 0xff};
    detail::store(at, size);
    at += 1 + wide;
    tag |= wide << 5;
  }
  compiler_barrier();
  *begin = static_cast<std::uint8_t>(tag);
  stream.at = at;
}

// The same at the time `now`.
template <bool has_size>
[[gnu::always_inline]] inline void put_stamped(Stream& stream, Tag kind, std::uint64_t address,
                                               std::uint64_t size, std::uint64_t now) {
  if (__builtin_expect(!stream.stamped, 0)) {
    put_other(stream, Other::kStamped, 0);
    stream.stamped = true;
  }
  std::uint64_t step = now - stream.clock;
  if (__builtin_expect(step > 255, 0)) {
    put_clock(stream, now);
    step = 0;
  } else {
    stream.clock = now;
  }
  put_event<has_size>(stream, kind, address, size, step);
}

// Begins a block at `where`, kBlockBytes of zeroes.
inline void begin_block(Stream& stream, void* where, std::uint32_t writer, std::uint64_t sequence,
                        std::uint32_t thread) {
  auto* const header = static_cast<BlockHeader*>(where);
  header->writer = writer;
  header->sequence = sequence;
  header->clock = stream.clock;
  header->thread = thread;
  compiler_barrier();
  header->magic = kBlockMagic;
  stream.at = static_cast<std::uint8_t*>(where) + sizeof(BlockHeader);
  stream.limit = static_cast<std::uint8_t*>(where) + kBlockBytes - kMaxEventBytes;
  stream.stamped = false;
  stream.bases = {};
}

}  // namespace heapwright::recorder
