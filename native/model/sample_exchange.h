// Exchanges copies between neighbouring objects of a sample (sample_expander.h).
//
// A sample shows when its objects are allocated and freed, but not their neighbours. Which pages
// become free when some objects are freed and others stay depends on where their copies lie:
//   - Copies of an object are allocated near it. If all of them were freed with it, they would give
//     whole pages back. In a program that deletes every second entry of a table, no page is free.
//   - If copies were freed with any object of their time, no page would become free in a program
//     that allocates objects together and also frees them together.
// So copies exchange their objects with copies of a few neighbours of similar size and of the same
// thread. They stay where they are, but are resized and freed with their new object.
//
//   allocated         aaaa bbbb cccc        four copies of each object A, B, C
//   after exchanges   abac bcba cbca        in the same places: the object that each belongs to
//
// Each object has as many copies as before. A copy keeps its size until it is resized, so live bytes
// may differ by the width of a kind. docs/design-notes/replays.md has the measurements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "sample_copies.h"

namespace heapwright::model {

class SampleExchange {
 public:
  // sampled, copies  the state of the expander
  // bits             its random numbers
  SampleExchange(Pool<Sampled>& sampled, Pool<Copy>& copies, std::mt19937_64& bits)
      : sampled_(sampled), copies_(copies), bits_(bits) {}

  // Takes the objects that were allocated or resized in a block. Copies of those that are allocated
  // and outlive the next block, too, exchange their objects with copies of earlier ones.
  void add_block(const std::vector<std::uint32_t>& objects);

 private:
  struct Member {
    std::uint32_t index = 0;
    std::uint64_t output = 0;  // tells whether the index is still of the same object
  };

  using CopyKind = std::tuple<int, std::uint32_t, int, std::uint64_t>;

  static CopyKind kind_of(const trace::Event& allocation);
  void drop_ended(std::vector<Member>& members) const;
  bool takes_part(std::uint32_t index) const;
  bool swap(std::uint32_t one, std::uint32_t two);
  std::uint64_t below(std::uint64_t bound) { return bits_() % bound; }

  Pool<Sampled>& sampled_;
  Pool<Copy>& copies_;
  std::mt19937_64& bits_;
  std::map<CopyKind, std::vector<Member>> last_;  // objects of each kind
  std::size_t kinds_ = 0;                         // a larger number of kinds is looked through
};

}  // namespace heapwright::model
