#include <future>
#include <numeric>
#include <string>
#include <vector>

int main() {
  std::vector<std::future<std::size_t>> parts;
  for (int t = 0; t < 4; ++t) {
    parts.push_back(std::async(std::launch::async, [] {
      std::vector<std::string> words(2000, std::string(50, 'x'));
      return std::accumulate(words.begin(), words.end(), std::size_t{0},
                             [](std::size_t sum, const std::string& word) { return sum + word.size(); });
    }));
  }
  std::size_t sum = 0;
  for (auto& part : parts) {
    sum += part.get();
  }
  return sum == 400000 ? 0 : 1;
}
