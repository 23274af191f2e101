#include "live_table.h"

namespace heapwright::recorder {

const Live* LiveTable::find(std::uint64_t address) const {
  const std::size_t mask = places_.size() - 1;
  for (std::size_t i = home(address); places_[i].address != 0; i = (i + 1) & mask) {
    if (places_[i].address == address) {
      return &places_[i];
    }
  }
  return nullptr;
}

void LiveTable::put(const Live& live) {
  const std::size_t mask = places_.size() - 1;
  std::size_t i = home(live.address);
  while (places_[i].address != 0) {
    i = (i + 1) & mask;
  }
  places_[i] = live;
}

void LiveTable::insert(const Live& live) {
  if (++used_ * 4 > places_.size() * 3) {
    grow();
  }
  put(live);
}

void LiveTable::grow() {
  std::vector<Live> old(places_.size() * 2);
  old.swap(places_);
  ++bits_;
  for (const Live& live : old) {
    if (live.address != 0) {
      put(live);
    }
  }
}

// What stands behind moves up, where that brings it nearer to its home: so a search may stop at the first empty place.
void LiveTable::erase(const Live* live) {
  const std::size_t mask = places_.size() - 1;
  auto hole = static_cast<std::size_t>(live - places_.data());
  for (std::size_t i = (hole + 1) & mask; places_[i].address != 0; i = (i + 1) & mask) {
    const std::size_t wanted = home(places_[i].address);
    if (((i - wanted) & mask) >= ((i - hole) & mask)) {
      places_[hole] = places_[i];
      hole = i;
    }
  }
  places_[hole] = Live{};
  --used_;
}

}  // namespace heapwright::recorder
