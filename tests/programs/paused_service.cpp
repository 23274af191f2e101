// A service with peaks of work and pauses between them, in which only a little is done.
//
//   paused_service MODE [PEAKS [PAUSE_MS [THREADS]]]
//
// MODE 'pool': the same threads work in each peak. 'exiting': each peak has threads of its own,
// which then exit. 'shifting': as 'pool', and the blocks of each peak have other sizes than those
// before. In a peak, each thread handles requests: it allocates a few hundred blocks, keeps some of
// them for the rest of the peak, and frees the others. At the end of the peak one block in sixteen
// stays. In a pause the main thread handles a small request every 5 ms.
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

using Block = std::unique_ptr<char[]>;

constexpr unsigned kRequests = 120;         // of a thread in a peak
constexpr unsigned kBlocks = 400;           // of a request
constexpr unsigned kKeptOfRequest = 4;      // one block in this many stays until the end of the peak
constexpr unsigned kKeptOfPeak = 16;        // one block in this many stays for ever
constexpr std::size_t kLimitOfCache = 40000;  // blocks that stay at most

std::mutex lock;
std::vector<Block> cache;

// Sizes of the peaks in the mode 'shifting', in turn. Peaks take about the same number of bytes.
struct Sizes {
  std::size_t min;
  std::size_t max;
  unsigned blocks;  // of a request
};
constexpr Sizes kShifting[] = {{16, 112, 4000}, {1500, 4000, 200}, {200, 600, 1200}, {9000, 60000, 20}};
bool shifting = false;

Block make_block(std::mt19937& random) {
  // Mostly small, seldom some tens of KiB, as objects and buffers are.
  const std::size_t bytes = random() % 64 == 0 ? 4096 + random() % 60000 : 16 + random() % 1000;
  Block block(new char[bytes]);
  std::memset(block.get(), 1, bytes);
  return block;
}

void keep(std::vector<Block>& of_peak) {
  const std::lock_guard<std::mutex> guard(lock);
  for (std::size_t i = 0; i < of_peak.size(); i += kKeptOfPeak) {
    cache.push_back(std::move(of_peak[i]));
  }
  if (cache.size() > kLimitOfCache) {
    cache.erase(cache.begin(), cache.begin() + static_cast<std::ptrdiff_t>(cache.size() - kLimitOfCache));
  }
}

Block make_block(std::mt19937& random, const Sizes& sizes) {
  const std::size_t bytes = sizes.min + random() % (sizes.max - sizes.min);
  Block block(new char[bytes]);
  std::memset(block.get(), 1, bytes);
  return block;
}

void work(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Block> of_peak;
  const Sizes& sizes = kShifting[seed / 100 % std::size(kShifting)];
  const unsigned count = shifting ? sizes.blocks : kBlocks;
  for (unsigned request = 0; request < kRequests; ++request) {
    std::vector<Block> blocks;
    for (unsigned i = 0; i < count; ++i) {
      blocks.push_back(shifting ? make_block(random, sizes) : make_block(random));
    }
    for (unsigned i = 0; i < count; i += kKeptOfRequest) {
      of_peak.push_back(std::move(blocks[i]));
    }
  }
  keep(of_peak);
}

void pause(std::chrono::milliseconds time) {
  std::mt19937 random(7);
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    std::vector<Block> blocks;
    for (unsigned i = 0; i < 20; ++i) {
      blocks.push_back(make_block(random));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Threads that wait for the next peak.
class Pool {
 public:
  explicit Pool(unsigned threads) : threads_(threads) {
    for (unsigned i = 0; i < threads; ++i) {
      workers_.emplace_back([this, i] { serve(i); });
    }
  }
  ~Pool() {
    set_peak(~0U);
    for (std::thread& worker : workers_) {
      worker.join();
    }
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  void handle_peak(unsigned peak) {
    set_peak(peak);
    std::unique_lock<std::mutex> guard(own_);
    changed_.wait(guard, [this] { return done_ == threads_; });
  }

 private:
  void set_peak(unsigned peak) {
    const std::lock_guard<std::mutex> guard(own_);
    peak_ = peak;
    done_ = 0;
    changed_.notify_all();
  }

  void serve(unsigned number) {
    for (unsigned last = 0;;) {
      std::unique_lock<std::mutex> guard(own_);
      changed_.wait(guard, [&] { return peak_ != last; });
      last = peak_;
      guard.unlock();
      if (last == ~0U) {
        return;
      }
      work(last * 100 + number);
      guard.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex own_;
  std::condition_variable changed_;
  unsigned peak_ = 0;
  unsigned done_ = 0;
  unsigned threads_;
  std::vector<std::thread> workers_;
};

unsigned number(int argc, char** argv, int at, unsigned otherwise) {
  return argc > at ? static_cast<unsigned>(std::strtoul(argv[at], nullptr, 10)) : otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  shifting = argc > 1 && std::strcmp(argv[1], "shifting") == 0;
  const bool pool = shifting || (argc > 1 && std::strcmp(argv[1], "pool") == 0);
  const unsigned peaks = number(argc, argv, 2, 4);
  const std::chrono::milliseconds time(number(argc, argv, 3, 1500));
  const unsigned threads = number(argc, argv, 4, 4);
  std::unique_ptr<Pool> workers = pool ? std::make_unique<Pool>(threads) : nullptr;
  for (unsigned peak = 1; peak <= peaks; ++peak) {
    if (pool) {
      workers->handle_peak(peak);
    } else {
      std::vector<std::thread> own;
      for (unsigned i = 0; i < threads; ++i) {
        own.emplace_back(work, peak * 100 + i);
      }
      for (std::thread& thread : own) {
        thread.join();
      }
    }
    pause(time);
  }
}
