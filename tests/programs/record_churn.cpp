// Allocates and frees about five million times a second, as C++ programs do: inserts and erases
// strings in a map.
//   record_churn [ROUNDS]      about 1.2 million events for each million rounds (see the last line of its output)
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

std::uint64_t state = 88172645463325252U;

std::uint64_t random_number() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

}  // namespace

int main(int count, char** words) {
  const long rounds = count > 1 ? std::atol(words[1]) : 400'000;
  std::map<std::uint64_t, std::string> table;
  std::uint64_t sum = 0;
  for (long i = 0; i < rounds; ++i) {
    const std::uint64_t number = random_number();
    std::string& text = table[number % 50'000];
    text.assign(20 + (number >> 20) % 80, static_cast<char>('a' + number % 26));
    const auto gone = table.find((number >> 32) % 50'000);
    if (gone != table.end()) {
      sum += gone->second.size();
      table.erase(gone);
    }
  }
  std::printf("%zu strings, %llu\n", table.size(), static_cast<unsigned long long>(sum));
  return 0;
}
