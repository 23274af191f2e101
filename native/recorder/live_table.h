// The objects that are live, by address: open addressing, no tombstones. 24 bytes an entry, at most half full after growing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heapwright::recorder {

struct Live {
  std::uint64_t address = 0;  // 0: the place is empty
  std::uint64_t object = 0;
  std::uint64_t size = 0;
};

class LiveTable {
 public:
  LiveTable() : places_(std::size_t{1} << kFirstBits), bits_(kFirstBits) {}

  // nullptr where there is none; valid until the next insert or erase.
  const Live* find(std::uint64_t address) const;
  // There must be none at this address.
  void insert(const Live& live);
  void erase(const Live* live);
  std::size_t size() const { return used_; }

 private:
  static constexpr unsigned kFirstBits = 12;
  std::size_t home(std::uint64_t address) const { return address * 0x9e3779b97f4a7c15U >> (64 - bits_); }
  void put(const Live& live);
  void grow();

  std::vector<Live> places_;
  unsigned bits_;
  std::size_t used_ = 0;
};

}  // namespace heapwright::recorder
