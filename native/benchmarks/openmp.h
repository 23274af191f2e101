// Defines run_openmp: like run_threads, but on OpenMP's threads, which live on between parallel
// regions, as in real programs. The data of libgomp and of its threads come from the allocator under
// test: a few kilobytes.
#pragma once

#include "bench.h"

namespace heapwright::bench {

// Runs body(number) once on each of so many threads, and adds its cost. libgomp lets new
// threads wait until all are there, so they start together.
template <class Body>
void run_openmp(Section& section, std::uint64_t count, Body body) {
  struct alignas(64) Times {
    double start;
    double end;
  };
  Pages<Times> times(count);
  const int threads = static_cast<int>(count);
  section.begin();
#pragma omp parallel for schedule(static, 1) num_threads(threads)
  for (int i = 0; i < threads; ++i) {
    const auto number = static_cast<std::size_t>(i);
    times[number].start = now();
    body(static_cast<std::uint64_t>(number));
    times[number].end = now();
  }
  double start = 1e300;
  double end = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    start = times[i].start < start ? times[i].start : start;
    end = times[i].end > end ? times[i].end : end;
  }
  section.end(end - start);
}

}  // namespace heapwright::bench
