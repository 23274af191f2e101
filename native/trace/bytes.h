// Encodes numbers as bytes: variable length, zig-zag, little-endian, single bits; and computes the
// check sum of bytes.
//
//   varint   7 bits a byte, low ones first, the top bit says that more follow; at most 10 bytes
//   zig-zag  0, -1, 1, -2 … as 0, 1, 2, 3 …
//
// Readers never go beyond their bytes. Once a read fails, ok() stays false and every read gives 0,
// so a caller may check once at the end.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace heapwright::trace {

using Bytes = std::string;

constexpr std::uint64_t zigzag(std::int64_t value) {
  return (static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63);
}

constexpr std::int64_t unzigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1) ^ -static_cast<std::int64_t>(value & 1);
}

inline void put_varint(Bytes& to, std::uint64_t value) {
  while (value >= 0x80) {
    to.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  to.push_back(static_cast<char>(value));
}

template <typename T>
void put_fixed(Bytes& to, T value) {
  for (unsigned i = 0; i < sizeof(T); i++) {
    to.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
}

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes = {}) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool ok() const { return ok_; }
  std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && at_ != end_; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at_++);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
    ok_ = false;
    return 0;
  }

  template <typename T>
  T fixed() {
    const std::string_view from = bytes(sizeof(T));
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < from.size(); i++) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(from[i])) << (8 * i);
    }
    return static_cast<T>(value);
  }

  std::string_view bytes(std::uint64_t count) {
    if (count > left()) {
      ok_ = false;
      return {};
    }
    const std::string_view found(at_, count);
    at_ += count;
    return found;
  }

  std::uint8_t byte() { return fixed<std::uint8_t>(); }

 private:
  const char* at_;
  const char* end_;
  bool ok_ = true;
};

// Writes bits one after the other, the low ones first.
class BitWriter {
 public:
  void put(std::uint64_t value, unsigned bits) {
    while (bits > 0) {
      const unsigned room = 8 - filled_;
      const unsigned taken = bits < room ? bits : room;
      last_ |= static_cast<unsigned>(value & ((1U << taken) - 1)) << filled_;
      value >>= taken;
      bits -= taken;
      filled_ += taken;
      if (filled_ == 8) {
        bytes_.push_back(static_cast<char>(last_));
        last_ = filled_ = 0;
      }
    }
  }
  Bytes take() {
    if (filled_ > 0) {
      bytes_.push_back(static_cast<char>(last_));
    }
    last_ = filled_ = 0;
    return std::move(bytes_);
  }

 private:
  Bytes bytes_;
  unsigned last_ = 0;
  unsigned filled_ = 0;
};

class BitReader {
 public:
  explicit BitReader(std::string_view bytes = {}) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  std::uint64_t get(unsigned bits) {
    std::uint64_t value = 0;
    for (unsigned have = 0; have < bits;) {
      if (at_ / 8 >= bytes_.size()) {
        ok_ = false;
        return 0;
      }
      const unsigned from = at_ % 8;
      const unsigned taken = bits - have < 8 - from ? bits - have : 8 - from;
      const unsigned byte = static_cast<unsigned char>(bytes_[at_ / 8]);
      value |= static_cast<std::uint64_t>((byte >> from) & ((1U << taken) - 1)) << have;
      have += taken;
      at_ += taken;
    }
    return value;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

// CRC-32 as in zip and PNG (reflected 0xEDB88320).
inline std::uint32_t crc32(std::string_view bytes) {
  static const std::array<std::uint32_t, 256> kTable = [] {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < 256; i++) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; bit++) {
        value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320U : 0U);
      }
      table[i] = value;
    }
    return table;
  }();
  std::uint32_t sum = ~0U;
  for (const char c : bytes) {
    sum = (sum >> 8) ^ kTable[(sum ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~sum;
}

}  // namespace heapwright::trace
