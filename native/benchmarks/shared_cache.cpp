// Threads that serve requests from one cache of bounded size. A request adds a value and drops the
// oldest values of its part of the cache, which other threads have mostly allocated, and makes and
// frees some small blocks of its own. After the caches of services: memcached, an LRU list, a buffer
// pool. Live memory stays constant, so any growth is the allocator's.
#include "bench.h"

namespace {

using namespace heapwright::bench;

struct Value {
  void* data;
  std::uint32_t size;
};

// A part of the cache with its own lock: values from the oldest to the latest, in a ring.
struct alignas(64) Part {
  pthread_mutex_t lock;
  std::uint64_t oldest;
  std::uint64_t end;
  std::uint64_t bytes;
};

constexpr std::uint64_t kParts = 64;
constexpr std::uint64_t kSmallBlocks = 64;  // of a request

void drop(const Value& value) {
  check(value.data, value.size, static_cast<std::uint8_t>(value.size));
  std::free(value.data);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  const std::uint64_t limit = (options.get("mib", 16, 4) << 20U) / kParts;
  const std::uint64_t requests = options.get("requests", 400'000, 40'000) / options.threads;
  const std::uint64_t slots = limit / 100 + 1024;
  Pages<Part> parts(kParts);
  Pages<Value> values(kParts * slots);
  for (std::uint64_t i = 0; i < kParts; ++i) {
    pthread_mutex_init(&parts[i].lock, nullptr);
  }
  Section section;
  run_threads(section, options.threads, [&](std::uint64_t thread) {
    Random random(options.seed * 1000 + thread);
    std::vector<Value> dropped(slots);
    Value small[kSmallBlocks];
    for (std::uint64_t request = 0; request < requests; ++request) {
      for (Value& block : small) {
        block.size = static_cast<std::uint32_t>(16 + random.below(200));
        block.data = std::malloc(block.size);
        fill(block.data, block.size, static_cast<std::uint8_t>(block.size));
      }
      const std::uint64_t times = random.below(50) == 0 ? 20 : 1;  // few values are large
      Value value{nullptr, static_cast<std::uint32_t>((100 + random.below(4000)) * times)};
      value.data = std::malloc(value.size);
      fill(value.data, value.size, static_cast<std::uint8_t>(value.size));
      const std::uint64_t number = random.below(kParts);
      Part& part = parts[number];
      Value* const ring = values.data() + number * slots;
      std::size_t count = 0;
      pthread_mutex_lock(&part.lock);
      ring[part.end++ % slots] = value;
      part.bytes += value.size;
      while (part.bytes > limit && part.end - part.oldest > 1) {
        const Value old = ring[part.oldest++ % slots];
        part.bytes -= old.size;
        dropped[count++] = old;
      }
      pthread_mutex_unlock(&part.lock);
      for (std::size_t i = 0; i < count; ++i) {
        drop(dropped[i]);
      }
      for (const Value& block : small) {
        drop(block);
      }
    }
  });
  for (std::uint64_t i = 0; i < kParts; ++i) {
    for (; parts[i].oldest < parts[i].end; ++parts[i].oldest) {
      drop(values[i * slots + parts[i].oldest % slots]);
    }
  }
  return Report("shared-cache", options).finish(section, requests * options.threads);
}
