// A service with 16 threads that handles requests in bursts and keeps a cache.
//
// Each request allocates some thousand blocks, puts a few of them into a cache that all threads
// share, and frees the rest. So the arenas of the threads are left with few live blocks between
// free memory.
//
//   threaded_service KEPT       the cache keeps one block in KEPT
//
// It reads commands, a line each, and prints 'done' after each: 'burst' lets the threads handle
// requests one after the other; 'trim' calls malloc_trim.
#include <malloc.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr unsigned kThreads = 16;
constexpr unsigned kBlocks = 8000;  // of a request

std::mutex lock;
std::condition_variable changed;
unsigned turn = kThreads;  // the thread that handles its request now; kThreads: none
bool stopped = false;
std::vector<std::string> cache;

void handle_request(std::mt19937& random, unsigned kept) {
  std::vector<std::string> blocks;
  for (unsigned i = 0; i < kBlocks; ++i) {
    blocks.emplace_back(200 + random() % 2000, 'x');
  }
  for (unsigned i = 0; i < kBlocks; i += kept) {
    cache.push_back(std::move(blocks[i]));
  }
}

void serve(unsigned number, unsigned kept) {
  std::mt19937 random(number);
  std::unique_lock<std::mutex> own(lock);
  for (;;) {
    changed.wait(own, [number] { return stopped || turn == number; });
    if (stopped) {
      return;
    }
    handle_request(random, kept);
    ++turn;
    changed.notify_all();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const unsigned kept = argc > 1 ? static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)) : 64;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < kThreads; ++i) {
    threads.emplace_back(serve, i, kept);
  }
  char line[64];
  while (std::fgets(line, sizeof(line), stdin) != nullptr) {
    if (std::strcmp(line, "trim\n") == 0) {
      malloc_trim(0);
    } else {
      std::unique_lock<std::mutex> own(lock);
      turn = 0;
      changed.notify_all();
      changed.wait(own, [] { return turn == kThreads; });
    }
    (void)std::puts("done");
    (void)std::fflush(stdout);
  }
  {
    const std::lock_guard<std::mutex> own(lock);
    stopped = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) {
    thread.join();
  }
  return 0;
}
