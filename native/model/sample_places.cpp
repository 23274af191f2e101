#include "sample_places.h"

#include <algorithm>
#include <cmath>

namespace heapwright::model {

namespace {

// Copies are at most so many items before or after their object. So the requests of a kind come
// about as evenly as those of the program: the number of its live objects varies less than if all
// copies of an object came at once.
constexpr double kSpread = 256;
// Copies are also at most this share of the lifetime of their object away from it. So none of them
// is allocated after it should be freed, and their lifetimes are right on average.
constexpr double kShareOfLifetime = 0.25;
// A copy lies among those of so many neighbours of its object's kind on either side.
constexpr double kNeighbours = 8;

}  // namespace

std::uint64_t SamplePlaces::kind_of(std::uint64_t size, std::uint32_t thread) {
  const double quarters = size < 16 ? 0 : 4 * std::log2(static_cast<double>(size));
  return (static_cast<std::uint64_t>(quarters) << 32U) | thread;
}

void SamplePlaces::add(std::uint32_t copy, std::uint64_t kind, double place, double lifetime) {
  const double reach = lifetime == kBrief ? kSpread : lifetime * kShareOfLifetime;
  entries_.push_back({copy, kind, place, reach, 0});
}

void SamplePlaces::choose(double last, const std::function<void(std::uint32_t, double)>& put) {
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.kind < b.kind; });
  for (auto begin = entries_.begin(); begin != entries_.end();) {
    const auto end =
        std::find_if(begin, entries_.end(), [begin](const Entry& e) { return e.kind != begin->kind; });
    choose_of_kind(begin, end, last);
    for (std::size_t i = 0; begin != end; ++begin, ++i) {
      put(begin->copy, places_[i] - begin->object);
    }
  }
  entries_.clear();
}

// Draws a place for each copy of a kind, and puts the copies in the order in which they take these
// places: that of their objects, but mixed with those of neighbours.
void SamplePlaces::choose_of_kind(std::vector<Entry>::iterator begin, std::vector<Entry>::iterator end,
                                  double last) {
  const auto drawn = [this](double middle, double reach) { return middle + reach * (2 * draw_() - 1); };
  places_.clear();
  double objects = 0;
  for (auto entry = begin; entry != end; ++entry) {
    objects += entry == begin || entry->object != std::prev(entry)->object ? 1 : 0;
    places_.push_back(std::clamp(drawn(entry->object, std::min(kSpread, entry->reach)), 0.0, last));
  }
  std::sort(places_.begin(), places_.end());
  const double neighbours = kNeighbours * last / objects;  // their distance, in items
  for (auto entry = begin; entry != end; ++entry) {
    const double place = places_[static_cast<std::size_t>(entry - begin)];
    entry->wish = drawn(place, std::min(neighbours, entry->reach));
  }
  std::stable_sort(begin, end, [](const Entry& a, const Entry& b) { return a.wish < b.wish; });
}

}  // namespace heapwright::model
