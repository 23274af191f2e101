// A hash table from the ids of live objects to what is kept of each: open addressing, linear probing, no tombstones. Its size
// follows the number of live objects, not of all there ever were, so a trace of any length is read in bounded memory.
// The hash has a key of this process's own: a raw trace's ids are addresses, which whoever made it chose, and might have chosen
// to meet in one cell. Where an id is kept differs from run to run, so nothing may depend on the order of `each`.
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace heapwright::trace {

struct HashKey {
  std::uint64_t added = 0x9E3779B97F4A7C15;  // for a kernel that has no random numbers yet
  std::uint64_t factor = 0xD1B54A32D192ED03;
};
inline HashKey random_key() noexcept {
  HashKey key;
  (void)!::getrandom(&key, sizeof key, GRND_NONBLOCK);
  key.factor |= 1;
  return key;
}
inline const HashKey kHashKey = random_key();

// Both halves of the product: bits from above alone, or from below, leave out numbers that can be chosen.
inline std::uint64_t mixed(std::uint64_t number) noexcept {
  using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(number ^ kHashKey.added) * kHashKey.factor;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// For the tables of the standard library, whose own is the number itself.
struct Mixed {
  std::size_t operator()(std::uint64_t number) const noexcept { return mixed(number); }
};

template <typename Value>
class LiveTable {
 public:
  LiveTable() : cells_(1024) {}

  std::size_t size() const { return size_; }

  // The value of an id; nullptr where it is not in. Good until the next insert or erase.
  Value* find(std::uint64_t id) {
    for (std::size_t at = home(id); cells_[at].id != kEmpty; at = next(at)) {
      if (cells_[at].id == id) {
        return &cells_[at].value;
      }
    }
    return nullptr;
  }

  // An id that is not in.
  Value& insert(std::uint64_t id, Value value) {
    if ((size_ + 1) * 2 > cells_.size()) {
      grow();
    }
    std::size_t at = home(id);
    while (cells_[at].id != kEmpty) {
      at = next(at);
    }
    cells_[at] = {id, std::move(value)};
    size_++;
    return cells_[at].value;
  }

  void erase(std::uint64_t id) {
    std::size_t hole = home(id);
    while (cells_[hole].id != id) {
      if (cells_[hole].id == kEmpty) {
        return;
      }
      hole = next(hole);
    }
    size_--;
    // What follows in the run moves up, as far as that leaves it between its home and where it is.
    for (std::size_t at = next(hole); cells_[at].id != kEmpty; at = next(at)) {
      const std::size_t want = home(cells_[at].id);
      if (((at - want) & (cells_.size() - 1)) >= ((at - hole) & (cells_.size() - 1))) {
        cells_[hole] = std::move(cells_[at]);
        hole = at;
      }
    }
    cells_[hole].id = kEmpty;
  }

  template <typename Visit>
  void each(Visit visit) {
    for (auto& cell : cells_) {
      if (cell.id != kEmpty) {
        visit(cell.id, cell.value);
      }
    }
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  struct Cell {
    std::uint64_t id = kEmpty;
    Value value{};
  };

  std::size_t next(std::size_t at) const { return (at + 1) & (cells_.size() - 1); }
  // Thirty-two neighbours in time are neighbours in memory, since programs use together what they made together; mixed one by
  // one, every id would be a cache miss. The groups are scattered: live ids in one row would be one run of cells, and an
  // erase looks at all of its run.
  std::size_t home(std::uint64_t id) const { return (mixed(id >> 5) << 5 | (id & 31)) & (cells_.size() - 1); }
  void grow() {
    std::vector<Cell> old(cells_.size() * 2);
    old.swap(cells_);
    for (auto& cell : old) {
      if (cell.id != kEmpty) {
        std::size_t at = home(cell.id);
        while (cells_[at].id != kEmpty) {
          at = next(at);
        }
        cells_[at] = std::move(cell);
      }
    }
  }

  std::vector<Cell> cells_;
  std::size_t size_ = 0;
};

}  // namespace heapwright::trace
