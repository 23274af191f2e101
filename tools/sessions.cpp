// Makes sessions of objects with log-normal sizes in six threads. tools/sample_fidelity.py builds it and
// measures samples on it: it is held out, so no choice in the sampler was made with it. Sessions end in part
// in order, in part at random, and one in eight in another thread. After a pause, six further threads do it
// again with fewer sessions.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

using Random = std::mt19937_64;

struct Session {
  std::vector<std::unique_ptr<char[]>> parts;
};
using Sessions = std::vector<std::unique_ptr<Session>>;

std::mutex lock;
Sessions handed_over;

std::unique_ptr<char[]> make(Random& random) {
  std::lognormal_distribution<double> sizes(4.6, 1.1);
  const std::size_t size = std::min<std::size_t>(200000, 8 + static_cast<std::size_t>(sizes(random)));
  std::unique_ptr<char[]> part(new char[size]);
  std::memset(part.get(), 1, size);
  return part;
}

void hand_over(std::unique_ptr<Session> session, Random& random) {
  const std::scoped_lock guard(lock);
  handed_over.push_back(std::move(session));
  if (handed_over.size() > 3000) {
    std::swap(handed_over[random() % handed_over.size()], handed_over.back());
    handed_over.pop_back();
  }
}

void work(std::uint64_t seed, std::size_t wanted) {
  Random random(seed);
  Sessions mine;
  for (int i = 0; i < 12000; ++i) {
    auto session = std::make_unique<Session>();
    for (std::uint64_t left = 1 + random() % 30; left > 0; --left) {
      session->parts.push_back(make(random));
    }
    for (int k = 0; k < 10; ++k) {
      (void)make(random);
    }
    if (random() % 8 == 0) {
      hand_over(std::move(session), random);
      continue;
    }
    mine.push_back(std::move(session));
    while (mine.size() > wanted) {
      const std::size_t at = random() % 3 != 0 ? 0 : random() % mine.size();
      mine.erase(mine.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
}

}  // namespace

int main() {
  for (const std::size_t wanted : {std::size_t{1500}, std::size_t{500}}) {
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 6; ++thread) {
      threads.emplace_back(work, wanted + thread, wanted);
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    if (wanted == 1500) {
      std::this_thread::sleep_for(std::chrono::milliseconds(800));
    }
  }
}
