#include "model.h"

#include <numeric>

namespace heapwright::model {

bool ClassActivity::empty() const { return begins() == 0 && old_ends() == 0; }

std::uint64_t ClassActivity::begins() const {
  return std::accumulate(brief.begin(), brief.end(), long_count);
}

std::uint64_t ClassActivity::old_ends() const {
  return std::accumulate(old.begin(), old.end(), std::uint64_t{0});
}

void ClassActivity::add(const ClassActivity& other) {
  long_count += other.long_count;
  long_bytes += other.long_bytes;
  for (unsigned i = 0; i < kLifeBins; ++i) {
    brief[i] += other.brief[i];
  }
  for (unsigned i = 0; i < kAgeBins; ++i) {
    old[i] += other.old[i];
  }
}

}  // namespace heapwright::model
