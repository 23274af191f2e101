// Chooses where in a block of a sample the copies of its objects are allocated (sample_expander.h).
//
// A sample shows when its objects are allocated and freed, but not their neighbours. Where copies
// lie decides which pages become free when some objects are freed and others stay:
//   - If the copies of an object lay side by side, they would be freed together and give whole
//     pages back. In a program that deletes every second entry of a table, no page becomes free.
//   - If they were spread over all objects of their time, no page would become free in a program
//     that frees what it allocated together.
// So a copy lies among those of a few neighbours of its object, of similar size and of the same
// thread. docs/design-notes/replays.md has the measurements.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace heapwright::model {

class SamplePlaces {
 public:
  // `draw` returns a number in [0, 1).
  explicit SamplePlaces(std::function<double()> draw) : draw_(std::move(draw)) {}

  // Adds a copy. Copies come in the order of their objects.
  //
  // copy      its number
  // kind      kind_of its object
  // place     of its object
  // lifetime  items of the sample until its object is freed; kBrief if the copy has the lifetime of
  //           its object wherever it lies
  void add(std::uint32_t copy, std::uint64_t kind, double place, double lifetime);

  // Chooses the places of all copies between 0 and `last`, calls `put(copy, offset)` for each with
  // the distance from its object, and forgets the copies.
  void choose(double last, const std::function<void(std::uint32_t copy, double offset)>& put);

  // Objects of a kind have similar sizes, within a quarter of a doubling, and one thread.
  static std::uint64_t kind_of(std::uint64_t size, std::uint32_t thread);

  static constexpr double kBrief = -1;

 private:
  struct Entry {
    std::uint32_t copy = 0;
    std::uint64_t kind = 0;
    double object = 0;  // its place
    double reach = 0;   // how far the copy may be from it
    double wish = 0;
  };

  void choose_of_kind(std::vector<Entry>::iterator begin, std::vector<Entry>::iterator end, double last);

  std::function<double()> draw_;
  std::vector<Entry> entries_;
  std::vector<double> places_;  // of the kind under way, in order
};

}  // namespace heapwright::model
