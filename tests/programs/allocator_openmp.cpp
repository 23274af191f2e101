// Allocates in nested OpenMP regions: allocator_openmp. Blocks of one level are freed at another
// level, by the thread that gets the iteration. Between regions, the main thread frees the rest.
// Prints "ok" and the number of threads.
#include <omp.h>

#include "allocator_churn.h"

namespace heapwright::shadow {
namespace {

constexpr int kOuter = 3;
constexpr int kInner = 4;
constexpr int kEach = 400;

void regions() {
  static Known blocks[kOuter][kInner][kEach];
#pragma omp parallel for num_threads(kOuter)
  for (int i = 0; i < kOuter; ++i) {
#pragma omp parallel for num_threads(kInner)
    for (int j = 0; j < kInner; ++j) {
      Random random(static_cast<std::uint64_t>(i * kInner + j));
      for (Known& one : blocks[i][j]) {
        one = take(random, 300);
      }
    }
#pragma omp parallel for num_threads(kInner)
    for (int j = 0; j < kInner; ++j) {
      for (int k = 0; k < kEach; k += 2) {
        give(blocks[i][(j + 1) % kInner][k]);
      }
    }
  }
  for (auto& outer : blocks) {
    for (auto& inner : outer) {
      for (Known& one : inner) {
        give(one);
      }
    }
  }
}

}  // namespace
}  // namespace heapwright::shadow

int main() {
  omp_set_max_active_levels(2);
  for (int i = 0; i < 20; ++i) {
    heapwright::shadow::regions();
  }
  std::puts("ok");
}
