// Maps the ids of live objects to values: a hash table with open addressing, linear probing and no
// tombstones. Its size follows the number of live objects, not the number of all objects, so the
// memory does not grow with the length of a trace.
//
// Each process has its own random hash key. The ids of a raw trace are addresses. Without the key,
// an attacker could make a trace whose addresses collide. With it, the order of `each` differs from
// run to run, so no result may depend on it.
#pragma once

#include <sys/random.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace heapwright::trace {

struct HashKey {
  std::uint64_t added = 0x9E3779B97F4A7C15;  // used if the kernel has no random numbers yet
  std::uint64_t factor = 0xD1B54A32D192ED03;
};
inline HashKey random_key() noexcept {
  HashKey key;
  (void)!::getrandom(&key, sizeof key, GRND_NONBLOCK);
  key.factor |= 1;
  return key;
}
inline const HashKey kHashKey = random_key();

// Multiplies and combines both halves of the product, because with the upper bits alone, or the
// lower ones, it is easy to choose numbers that collide.
inline std::uint64_t folded_product(std::uint64_t number, std::uint64_t factor) noexcept {
  using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(number) * factor;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

// Hashes a number. With one multiplication, one key in some hundred puts consecutive numbers into
// neighbouring cells, which makes long runs; a second one, by a fixed odd factor, spreads them.
inline std::uint64_t mixed(std::uint64_t number) noexcept {
  constexpr std::uint64_t kSecondFactor = 0x9E3779B97F4A7C15;  // 2^64 divided by the golden ratio
  return folded_product(folded_product(number ^ kHashKey.added, kHashKey.factor), kSecondFactor);
}

// The hash for tables of the standard library, whose default hash is the number itself.
struct Mixed {
  std::size_t operator()(std::uint64_t number) const noexcept { return mixed(number); }
};

template <typename Value>
class LiveTable {
 public:
  LiveTable() : cells_(1024) {}

  std::size_t size() const { return size_; }

  // Returns the value of an id, nullptr if the id is not in the table. Valid until the next insert
  // or erase.
  Value* find(std::uint64_t id) {
    for (std::size_t at = home(id); cells_[at].id != kEmpty; at = next(at)) {
      if (cells_[at].id == id) {
        return &cells_[at].value;
      }
    }
    return nullptr;
  }

  // Inserts an id that is not in the table.
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
    // Move later cells of the run into the hole, unless that would put one in front of its home
    // cell.
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
  // The cell where the search for an id begins. 32 consecutive ids have consecutive cells, because
  // programs use together the objects that they allocated together; if each id were hashed by
  // itself, each would be a cache miss. The groups of 32 are scattered, because consecutive live
  // ids would otherwise form one long run of cells, and an erase visits its whole run.
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
