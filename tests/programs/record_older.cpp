// record_older THREADS BEFORE INSIDE: each thread makes BEFORE requests. Then the program raises SIGRTMAX, and allocates
// and frees blocks of 4 MiB, one of which begins the window. Then each thread makes INSIDE requests.
#include <pthread.h>

#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

void request(int times, std::size_t bytes) {
  for (int i = 0; i < times; ++i) {
    void* volatile block = std::malloc(bytes);
    std::free(block);
  }
}

}  // namespace

int main(int, char** words) {
  const int threads = std::atoi(words[1]);
  const int before = std::atoi(words[2]);
  const int inside = std::atoi(words[3]);
  static pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(threads) + 1);
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([=] {
      request(before, 24);
      pthread_barrier_wait(&barrier);
      pthread_barrier_wait(&barrier);
      request(inside, 24);
    });
  }
  pthread_barrier_wait(&barrier);
  std::raise(SIGRTMAX);
  request(64, std::size_t{4} << 20);
  pthread_barrier_wait(&barrier);
  for (std::thread& thread : all) {
    thread.join();
  }
}
