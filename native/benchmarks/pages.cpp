// A heap of small blocks that grows, is used at random, falls to a tenth and grows again. After
// Hunter et al., Beyond malloc efficiency to fleet efficiency (Temeraire), OSDI 2021. Shows what
// huge pages save, page faults and CPU time, and what memory they cost. A tenth stays of each run
// of blocks, or of all at random.
#include <barrier>

#include "bench.h"

namespace {

using namespace heapwright::bench;

struct Block {
  void* data;
  std::uint32_t size;
};

// A field of /proc/self/smaps_rollup in bytes; 0 where the kernel has no such file.
std::uint64_t rollup(const char* key) {
  std::uint64_t bytes = 0;
  std::FILE* const file = std::fopen("/proc/self/smaps_rollup", "re");
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) == 0) {
      bytes = std::strtoull(line + std::strlen(key) + 1, nullptr, 10) * 1024;
    }
  }
  if (file != nullptr) {
    (void)std::fclose(file);
  }
  return bytes;
}

double faults() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_minflt);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options(argc, argv);
  const std::uint64_t bytes = (options.get("mib", 256, 48) << 20U) / options.threads;
  const std::uint64_t uses = options.get("uses", 20'000'000, 100'000) / options.threads;
  const bool at_random = options.get("random", 0, 0) != 0;
  const useconds_t idle = options.get("idle_ms", 1500, 50) * 1000;
  Report report("pages", options);
  std::barrier gate(static_cast<std::ptrdiff_t>(options.threads));
  Section section;
  double faults_before = faults();
  const auto tell = [&](std::uint64_t thread, const std::string& phase) {
    gate.arrive_and_wait();
    if (thread == 0) {
      report.add(phase + "_faults", faults() - faults_before);
      report.add(phase + "_rss_bytes", static_cast<double>(rollup("Rss:")));
      report.add(phase + "_huge_bytes", static_cast<double>(rollup("AnonHugePages:")));
      faults_before = faults();
    }
    gate.arrive_and_wait();
  };
  run_threads(section, options.threads, [&](std::uint64_t thread) {
    Random random(options.seed * 1000 + thread);
    Pages<Block> blocks(bytes / 16);
    std::uint64_t count = 0;
    std::uint64_t live = 0;
    const auto grow = [&] {
      while (live < bytes) {
        Block& block = blocks[count++];
        block.size = static_cast<std::uint32_t>(16 + random.below(497));
        block.data = std::malloc(block.size);
        fill(block.data, block.size, static_cast<std::uint8_t>(block.size));
        live += block.size;
      }
    };
    grow();
    tell(thread, "grown");
    for (std::uint64_t i = 0; i < uses; ++i) {
      auto* const byte = static_cast<volatile char*>(blocks[random.below(count)].data);
      *byte = *byte;
    }
    std::uint64_t left = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      check(blocks[i].data, blocks[i].size, static_cast<std::uint8_t>(blocks[i].size));
      if (at_random ? random.below(10) == 0 : i % 100'000 < 10'000) {
        blocks[left++] = blocks[i];
      } else {
        live -= blocks[i].size;
        std::free(blocks[i].data);
      }
    }
    count = left;
    usleep(idle);
    std::free(std::malloc(64));  // some allocators purge only when they are called
    tell(thread, "fallen");
    grow();
    tell(thread, "regrown");
    while (count > 0) {
      std::free(blocks[--count].data);
    }
  });
  return report.finish(section, options.threads * uses);
}
