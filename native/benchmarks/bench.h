// Shared by all benchmark programs: options, a seeded generator, memory apart from the allocator's,
// checks of the contents of blocks, threads that start together, and one JSON object at the end.
//
// Rules: bookkeeping lives in Pages (mmap), so that the allocator under test sees the benchmark's
// blocks and nothing else; every block is written and its tag checked before it is freed, and a
// wrong tag ends the program with status 3.
#pragma once

#include <linux/perf_event.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace heapwright::bench {

constexpr int kCorrupt = 3;

// --threads N, --seed N, --quick, --void, and NAME=NUMBER for a program's own parameters.
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const auto equals = word.find('=');
      if (word == "--quick") {
        quick = true;
      } else if (word == "--void") {
        empty = true;
      } else if ((word == "--threads" || word == "--seed") && i + 1 < argc) {
        (word == "--seed" ? seed : threads) = number(argv[++i]);
      } else if (equals != std::string::npos) {
        given_.emplace_back(word.substr(0, equals), number(word.c_str() + equals + 1));
      } else {
        usage(argv[0], word);
      }
    }
    if (threads == 0 || threads > 4096) {
      usage(argv[0], "--threads " + std::to_string(threads));
    }
  }

  // A program's own number: as given, or the full or quick default.
  [[nodiscard]] std::uint64_t get(const char* name, std::uint64_t full, std::uint64_t fast) const {
    for (const auto& [key, value] : given_) {
      if (key == name) {
        return value;
      }
    }
    return quick ? fast : full;
  }

  std::uint64_t threads = 1;
  std::uint64_t seed = 1;
  bool quick = false;
  bool empty = false;  // the void allocator instead of malloc, to measure the cost of the test itself

 private:
  static std::uint64_t number(const char* text) {
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(text, &end, 10);
    if (end == text || *end != '\0') {
      usage("benchmark", text);
    }
    return value;
  }
  [[noreturn]] static void usage(const char* program, const std::string& word) {
    (void)std::fprintf(
        stderr, "%s: bad option: %s; usage: [--threads N] [--seed N] [--quick] [--void] [NAME=NUMBER]...\n",
        program, word.c_str());
    std::exit(2);
  }
  std::vector<std::pair<std::string, std::uint64_t>> given_;
};

// splitmix64: small, seeded, good enough to choose sizes with.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::uint64_t operator()() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint64_t below(std::uint64_t limit) { return (*this)() % limit; }
  double unit() { return static_cast<double>((*this)() >> 11U) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

// A zeroed array from the kernel.
template <class T>
class Pages {
 public:
  explicit Pages(std::size_t count) : bytes_(count * sizeof(T)) {
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("mmap");
      std::exit(1);
    }
    data_ = static_cast<T*>(memory);
  }
  ~Pages() { munmap(static_cast<void*>(data_), bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  T& operator[](std::size_t i) { return data_[i]; }
  T* data() { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};

[[noreturn]] inline void corrupt(const void* block, std::size_t size) {
  (void)std::fprintf(stderr, "corruption: block %p of %zu bytes does not hold what was written\n", block,
                     size);
  std::_Exit(kCorrupt);
}

// Writes all of a block: its tag in the first and last byte, a pattern between.
inline void fill(void* block, std::size_t size, std::uint8_t tag) {
  if (block == nullptr) {
    (void)std::fprintf(stderr, "out of memory: %zu bytes\n", size);
    std::_Exit(1);
  }
  std::memset(block, tag, size);
  asm volatile("" : : "r"(block) : "memory");
}

// Reads all of a block and checks it.
inline void check(const void* block, std::size_t size, std::uint8_t tag) {
  const auto* const bytes = static_cast<const unsigned char*>(block);
  std::uint64_t difference = 0;
  const std::uint64_t pattern = tag * 0x0101010101010101U;
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    difference |= word ^ pattern;
  }
  for (; i < size; ++i) {
    difference |= static_cast<std::uint64_t>(bytes[i] ^ tag);
  }
  if (difference != 0) {
    corrupt(block, size);
  }
}

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// A line of /proc/self/status, in bytes: VmRSS, VmHWM, VmSize.
inline std::uint64_t status(const char* key) {
  std::FILE* const file = std::fopen("/proc/self/status", "re");
  char line[256];
  std::uint64_t value = 0;
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, key, std::strlen(key)) == 0 && line[std::strlen(key)] == ':') {
      value = std::strtoull(line + std::strlen(key) + 1, nullptr, 10) * 1024;
    }
  }
  if (file != nullptr) {
    (void)std::fclose(file);
  }
  return value;
}

// The cost of the measured part of a program: wall time as the program says, CPU time of all
// threads and ended children, and cycles and instructions where perf_event_open works. Make it
// before there are threads: they inherit the counters. Several parts add up.
class Section {
 public:
  Section() : cycles_(PERF_COUNT_HW_CPU_CYCLES), instructions_(PERF_COUNT_HW_INSTRUCTIONS) {}

  void begin() {
    user_began_ = cpu(&rusage::ru_utime);
    sys_began_ = cpu(&rusage::ru_stime);
    cycles_.begin();
    instructions_.begin();
  }
  void end(double wall) {
    instructions_.end();
    cycles_.end();
    user_s += cpu(&rusage::ru_utime) - user_began_;
    sys_s += cpu(&rusage::ru_stime) - sys_began_;
    wall_s += wall;
  }
  // A number, or null.
  [[nodiscard]] std::string cycles() const { return cycles_.text(); }
  [[nodiscard]] std::string instructions() const { return instructions_.text(); }

  double wall_s = 0;
  double user_s = 0;
  double sys_s = 0;

 private:
  // One hardware counter of this process, threads and children included; kernel time too where that
  // is allowed.
  class Counter {
   public:
    explicit Counter(std::uint64_t event) {
      perf_event_attr what{};
      what.type = PERF_TYPE_HARDWARE;
      what.size = sizeof what;
      what.config = event;
      what.inherit = 1;
      what.exclude_hv = 1;
      for (const unsigned user_only : {0U, 1U}) {
        what.exclude_kernel = user_only;
        if (file_ < 0) {
          file_ = static_cast<int>(syscall(SYS_perf_event_open, &what, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
        }
      }
    }
    ~Counter() {
      if (file_ >= 0) {
        close(file_);
      }
    }
    Counter(const Counter&) = delete;
    Counter& operator=(const Counter&) = delete;
    void begin() { began_ = value(); }
    void end() { total_ += value() - began_; }
    [[nodiscard]] std::string text() const { return file_ < 0 ? "null" : std::to_string(total_); }

   private:
    std::uint64_t value() {
      std::uint64_t count = 0;
      if (file_ >= 0 && read(file_, &count, sizeof count) != sizeof count) {
        close(file_);
        file_ = -1;
      }
      return count;
    }
    int file_ = -1;
    std::uint64_t began_ = 0;
    std::uint64_t total_ = 0;
  };

  static double cpu(timeval rusage::* time) {
    double sum = 0;
    for (const auto whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
      rusage used{};
      getrusage(whose, &used);
      sum += static_cast<double>((used.*time).tv_sec) + static_cast<double>((used.*time).tv_usec) * 1e-6;
    }
    return sum;
  }

  Counter cycles_;
  Counter instructions_;
  double user_began_ = 0;
  double sys_began_ = 0;
};

// Runs body(thread number) on `count` threads that start together. Returns the seconds from the
// first start to the last end, as measured by the threads, because the waiting thread may be woken
// late.
template <class Body>
double run_threads(std::uint64_t count, Body body) {
  struct Thread {
    Body* body;
    std::barrier<>* gate;
    std::uint64_t number;
    pthread_t handle;
    double start;
    double end;
  };
  std::barrier gate(static_cast<std::ptrdiff_t>(count));
  Pages<Thread> threads(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    threads[i] = {&body, &gate, i, {}, 0, 0};
    const auto run = [](void* raw) -> void* {
      auto* const self = static_cast<Thread*>(raw);
      self->gate->arrive_and_wait();
      self->start = now();
      (*self->body)(self->number);
      self->end = now();
      return nullptr;
    };
    if (pthread_create(&threads[i].handle, nullptr, run, &threads[i]) != 0) {
      std::perror("pthread_create");
      std::exit(1);
    }
  }
  double start = 1e300;
  double end = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    pthread_join(threads[i].handle, nullptr);
    start = threads[i].start < start ? threads[i].start : start;
    end = threads[i].end > end ? threads[i].end : end;
  }
  return end - start;
}

// The same as the measured part of a program, or one more of its parts; its wall time.
template <class Body>
double run_threads(Section& section, std::uint64_t count, Body body) {
  section.begin();
  const double took = run_threads(count, body);
  section.end(took);
  return took;
}

// One JSON object on stdout.
class Report {
 public:
  Report(const char* benchmark, const Options& options) {
    text_ = "{\"benchmark\": \"" + std::string(benchmark) +
            "\", \"threads\": " + std::to_string(options.threads) +
            ", \"seed\": " + std::to_string(options.seed) +
            ", \"void\": " + (options.empty ? "true" : "false") +
            ", \"quick\": " + (options.quick ? "true" : "false");
  }
  void add(const std::string& key, double value) {
    char number[40];
    (void)std::snprintf(number, sizeof number, "%.9g", value);
    text_ += ", \"" + key + "\": " + number;
  }
  void add(const std::string& key, std::uint64_t value) {
    text_ += ", \"" + key + "\": " + std::to_string(value);
  }
  // Adds what every program reports and prints the whole; returns main's status.
  int finish(const Section& section, std::uint64_t operations) {
    add("wall_s", section.wall_s);
    add("user_s", section.user_s);
    add("sys_s", section.sys_s);
    add("cpu_s", section.user_s + section.sys_s);
    text_ += ", \"cycles\": " + section.cycles() + ", \"instructions\": " + section.instructions();
    add("operations", operations);
    add("ns_per_operation", operations == 0 ? 0.0 : section.wall_s * 1e9 / static_cast<double>(operations));
    add("rss_bytes", status("VmRSS"));
    add("peak_rss_bytes", status("VmHWM"));
    return std::printf("%s}\n", text_.c_str()) > 0 ? 0 : 1;
  }

 private:
  std::string text_;
};

}  // namespace heapwright::bench
