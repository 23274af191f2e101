// A plug-in whose threads allocate and free each other's blocks while its host allocates and frees
// too.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {
std::vector<std::thread> threads;
std::atomic<long> sum;
}  // namespace

extern "C" void begin() {
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      std::vector<std::unique_ptr<std::string>> mine;
      for (int i = 0; i < 20000; ++i) {
        mine.push_back(std::make_unique<std::string>(static_cast<std::size_t>(i % 300), 'a' + t));
        if (i % 3 == 0) {
          mine[mine.size() / 2].reset();
        }
      }
      long all = 0;
      for (const auto& one : mine) {
        all += one ? static_cast<long>(one->size()) : 0;
      }
      sum += all;
    });
  }
}

extern "C" long end() {
  for (std::thread& thread : threads) {
    thread.join();
  }
  threads.clear();
  return sum;
}
