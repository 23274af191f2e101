// Even numbers for the objects of each thread and of each group of sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <utility>

#include "sample_choice.h"

namespace heapwright::sample_choice {

class GroupedNumbers {
 public:
  // Returns the next number, 0 to 1, of an object's thread and group. `bits` begins those of a new one.
  double next(std::uint32_t thread, std::uint64_t size, std::mt19937_64& bits) {
    const auto [numbers, first] = numbers_.try_emplace({thread, sample_group(size)});
    if (first) {
      numbers->second.begin(bits());
    }
    return numbers->second.next();
  }
  // Forgets a thread that has ended.
  void forget(std::uint32_t thread) {
    numbers_.erase(numbers_.lower_bound({thread, 0}), numbers_.upper_bound({thread, ~std::size_t{0}}));
  }

 private:
  std::map<std::pair<std::uint32_t, std::size_t>, EvenNumbers> numbers_;
};

}  // namespace heapwright::sample_choice
