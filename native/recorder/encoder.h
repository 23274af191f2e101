// Writes records into a raw block; runs at every call of the program. It makes no system call and
// takes no lock. The only branches that depend on the values are those for stamps or addresses that
// are far apart and for large sizes.
//
// The caller checks that there is room for an event (Stream::limit lies kMaxEventBytes before the
// end of the block), passes the time, and is the only writer of the stream.
#pragma once

#include <bit>
#include <cstring>

#include "raw_format/bases.h"
#include "raw_format/format.h"

namespace heapwright::recorder {

using namespace raw;  // NOLINT(google-build-using-namespace): the recorder writes this format

// The most bytes that one event can take, with its clock, its prefixes and the excess of the last
// 8-byte store.
inline constexpr std::size_t kMaxEventBytes = 128;

struct Stream {
  std::uint8_t* at = nullptr;     // the next record goes here; all bytes from here on are zero
  std::uint8_t* limit = nullptr;  // there is room for one more event if `at` is below it
  std::uint64_t clock = 0;
  bool stamped = false;  // every further event of this block has a stamp
  Bases bases;
};

[[gnu::always_inline]] inline void compiler_barrier() { asm volatile("" ::: "memory"); }

namespace detail {

[[gnu::always_inline]] inline void store(std::uint8_t* where, std::uint64_t value) {
  std::memcpy(where, &value, 8);
}

}  // namespace detail

// Writes a record of kind 7 with a value of 0 to 8 bytes.
[[gnu::noinline]] inline void put_other(Stream& stream, Other what, std::uint64_t value) {
  const auto length = (static_cast<unsigned>(std::bit_width(value)) + 7) / 8;
  std::uint8_t* const at = stream.at;
  detail::store(at + 2, value);
  at[1] = static_cast<std::uint8_t>(length);
  compiler_barrier();
  at[0] = static_cast<std::uint8_t>(static_cast<unsigned>(Tag::kOther) | static_cast<unsigned>(what) << 3);
  stream.at = at + 2 + length;
}

// Writes a record of kind 7 whose value is an address.
inline void put_other_address(Stream& stream, Other what, std::uint64_t address) {
  const std::uint64_t unit = address / kAddressUnit;
  const Distance distance = stream.bases.nearest(unit);
  stream.bases.update(distance, unit);
  put_other(stream, what, distance.zigzag * kBases + distance.base);
}

// Sets the clock to `now` by a kClock record. Does nothing if `now` lies before the clock.
[[gnu::noinline]] inline void put_clock(Stream& stream, std::uint64_t now) {
  if (now > stream.clock) {
    put_other(stream, Other::kClock, now - stream.clock);
    stream.clock = now;
  }
}

// Writes one event of kinds 1-6.
//
// has_size  the kind is kMalloc, kCalloc or kRealloc
// stream    the raw block
// kind      the event
// address   of the block of memory
// size      bytes; unused without has_size
// step      units since the stream's clock, at most 255; 0 if the stream is not stamped
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

// Writes one event with its stamp. Parameters as in put_event; `now` is the time of the event in
// units of the clock.
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

// Begins a raw block.
//
// stream    writes to the block from now on
// where     the block's kBlockBytes of zeroes
// writer    the number of the writer
// sequence  the number of the block among this writer's blocks, from 0
// thread    the thread that makes the first record
// level     of the objects, in a recording of a sample
inline void begin_block(Stream& stream, void* where, std::uint32_t writer, std::uint64_t sequence,
                        std::uint32_t thread, std::uint32_t level) {
  auto* const header = static_cast<BlockHeader*>(where);
  header->writer = writer;
  header->sequence = sequence;
  header->clock = stream.clock;
  header->thread = thread;
  header->level = level;
  compiler_barrier();
  header->magic = kBlockMagic;
  stream.at = static_cast<std::uint8_t*>(where) + sizeof(BlockHeader);
  stream.limit = static_cast<std::uint8_t*>(where) + kBlockBytes - kMaxEventBytes;
  stream.stamped = false;
  stream.bases = {};
}

}  // namespace heapwright::recorder
