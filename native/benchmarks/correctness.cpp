// A matrix whose rows are allocated and written by threads, then checked and freed by another one.
// After Reaper's correctness test: blocks of different threads must not overlap, and a free by
// another thread must be safe.
#include "openmp.h"

int main(int argc, char** argv) {
  using namespace heapwright::bench;
  const Options options(argc, argv);
  const std::uint64_t rows = options.get("rows", 4096, 1024);
  const std::uint64_t rounds = options.get("rounds", 8, 8);
  const std::size_t size = rows * sizeof(std::uint32_t);
  Pages<std::uint32_t*> matrix(rows);
  Section section;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    run_openmp(section, options.threads, [&](std::uint64_t number) {
      for (std::uint64_t row = number; row < rows; row += options.threads) {
        matrix[row] = static_cast<std::uint32_t*>(std::malloc(size));
        fill(matrix[row], size, 0);
        for (std::uint64_t column = 0; column < rows; ++column) {
          matrix[row][column] = static_cast<std::uint32_t>(row * 31 + column + round);
        }
      }
    });
    section.begin();
    const double began = now();
    for (std::uint64_t row = 0; row < rows; ++row) {
      for (std::uint64_t column = 0; column < rows; ++column) {
        if (matrix[row][column] != static_cast<std::uint32_t>(row * 31 + column + round)) {
          corrupt(matrix[row], size);
        }
      }
      std::free(matrix[row]);
    }
    section.end(now() - began);
  }
  return Report("correctness", options).finish(section, rows * rounds);
}
