#include <vector>

int main() {
  long sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(2)
  for (int i = 0; i < 1000; ++i) {
    const std::vector<int> part(static_cast<std::size_t>(i), 1);
    sum += static_cast<long>(part.size());
  }
  return sum == 499500 ? 0 : 1;
}
