// Finds the interpreter's array of arenas, and adds up its pools. See cpython.h.
#include "cpython.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <string_view>
#include <unordered_set>

#include "page_map.h"

namespace heapwright::diagnose {

namespace {

using Page = PageMap::Page;

constexpr int kOldestMinor = 8;
constexpr int kNewestMinor = 14;
constexpr int kMaxPasses = 6;
constexpr std::size_t kFirstEntries = 16;  // INITIAL_ARENA_OBJECTS; the array grows by doubling
constexpr std::size_t kMaxEntries = 1 << 22U;
constexpr std::size_t kAlignment = 16;
constexpr std::size_t kClasses = 32;  // sizes to 512 bytes
constexpr std::uint32_t kMaxPools = 64;
constexpr std::uint64_t kSmallestPageBytes = 4096;
constexpr std::string_view kDeleted = " (deleted)";  // behind the name of a deleted file that is mapped

// struct arena_object of obmalloc.c, the same in all versions.
struct ArenaObject {
  std::uint64_t address;       // 0: unused
  std::uint64_t pool_address;  // pools from here on have never been used
  std::uint32_t free_pools;
  std::uint32_t total_pools;
  std::uint64_t first_free_pool;
  std::uint64_t next;
  std::uint64_t previous;
};
static_assert(sizeof(ArenaObject) == 48);

// struct pool_header, likewise.
struct PoolHeader {
  std::uint32_t count;  // allocated blocks
  std::uint32_t padding;
  std::uint64_t free_block;
  std::uint64_t next;
  std::uint64_t previous;
  std::uint32_t arena;
  std::uint32_t size_index;
  std::uint32_t next_offset;
  std::uint32_t max_next_offset;
};
static_assert(sizeof(PoolHeader) == 48);

struct Geometry {
  std::uint64_t arena_bytes;
  std::uint64_t pool_bytes;
};
constexpr std::array kGeometries{Geometry{1U << 20U, 1U << 14U}, Geometry{1U << 18U, 1U << 12U}};

// An interpreter that a process has mapped.
struct Interpreter {
  std::string name;
  std::string file;  // the library, or the executable
  bool free_threaded = false;
};

// Whether the headers of a pool fit to its arena and to the geometry.
bool fits(const PoolHeader& pool, std::size_t arena, const Geometry& geometry) {
  if (pool.size_index >= kClasses || pool.arena != arena) {
    return false;
  }
  const std::uint64_t size = (pool.size_index + std::uint64_t{1}) * kAlignment;
  return pool.max_next_offset == geometry.pool_bytes - size &&
         pool.count <= (geometry.pool_bytes - sizeof pool) / size;
}

std::uint64_t first_pool(const ArenaObject& arena, const Geometry& geometry) {
  return (arena.address + geometry.pool_bytes - 1) / geometry.pool_bytes * geometry.pool_bytes;
}

bool plausible(const ArenaObject& arena, std::uint64_t array, const Geometry& geometry) {
  if (arena.address == 0) {
    return arena.next == 0 || (arena.next > array && (arena.next - array) % sizeof arena == 0 &&
                               (arena.next - array) / sizeof arena < kMaxEntries);
  }
  return arena.address % kSmallestPageBytes == 0 && arena.total_pools >= kMaxPools - 1 &&
         arena.total_pools <= kMaxPools && arena.free_pools <= arena.total_pools &&
         arena.pool_address % geometry.pool_bytes == 0 && arena.pool_address >= arena.address &&
         arena.pool_address <= arena.address + geometry.arena_bytes;
}

// The array of arena objects, wherever it is.
class ArenaArray {
 public:
  ArenaArray(const Memory& memory, std::uint64_t address, Geometry geometry)
      : memory_(memory), address_(address), geometry_(geometry) {}

  // Reads the array. Returns false if the memory there is not such an array.
  bool read();
  // Adds up all pools. `page_map` may be nullptr: then the figures about pages stay as they are.
  void count(const PageMap* page_map, PythonHeap& heap) const;
  [[nodiscard]] std::size_t arenas() const {
    return static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(),
                                                  [](const ArenaObject& one) { return one.address != 0; }));
  }

 private:
  bool append(std::size_t count);
  void count_arena(std::size_t number, const PageMap* page_map, PythonHeap& heap,
                   std::array<SizeClass, kClasses>& classes) const;

  const Memory& memory_;
  std::uint64_t address_;
  Geometry geometry_;
  std::vector<ArenaObject> entries_;
};

// Reads `count` further entries. Returns false, and adds none, if they are no arena objects.
bool ArenaArray::append(std::size_t count) {
  const std::size_t before = entries_.size();
  entries_.resize(before + count);
  bool right =
      memory_.read(address_ + before * sizeof(ArenaObject), &entries_[before], count * sizeof(ArenaObject));
  for (std::size_t i = before; right && i < entries_.size(); ++i) {
    right = plausible(entries_[i], address_, geometry_);
  }
  for (std::size_t i = before; right && i < entries_.size(); ++i) {
    PoolHeader pool{};
    const std::uint64_t first = entries_[i].address == 0 ? 0 : first_pool(entries_[i], geometry_);
    if (first != 0 && entries_[i].pool_address > first) {
      right = memory_.read(first, &pool, sizeof pool) && fits(pool, i, geometry_);
    }
  }
  if (!right) {
    entries_.resize(before);
  }
  return right;
}

bool ArenaArray::read() {
  entries_.clear();
  if (!append(kFirstEntries) || arenas() == 0) {
    return false;
  }
  // Zeros behind the array pass as unused entries. They count for nothing.
  while (entries_.size() < kMaxEntries && append(entries_.size())) {
  }
  return true;
}

void ArenaArray::count(const PageMap* page_map, PythonHeap& heap) const {
  std::array<SizeClass, kClasses> classes{};
  heap.consistent = true;
  if (page_map != nullptr) {
    heap.resident_bytes = heap.free_pages_bytes = 0;
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].address != 0) {
      count_arena(i, page_map, heap, classes);
    }
  }
  for (std::size_t i = 0; i < kClasses; ++i) {
    SizeClass& of_size = classes[i];
    of_size.size = (i + 1) * kAlignment;
    of_size.live_bytes = of_size.live_blocks * of_size.size;
    of_size.free_bytes = of_size.free_blocks * of_size.size;
    heap.live_bytes += of_size.live_bytes;
    heap.free_bytes += of_size.free_bytes;
    if (of_size.spans != 0) {
      heap.classes.push_back(of_size);
    }
  }
}

void ArenaArray::count_arena(std::size_t number, const PageMap* page_map, PythonHeap& heap,
                             std::array<SizeClass, kClasses>& classes) const {
  const ArenaObject& arena = entries_[number];
  const std::uint64_t end = arena.address + geometry_.arena_bytes;
  ++heap.arenas;
  heap.arena_bytes += geometry_.arena_bytes;
  heap.free_arenas += arena.free_pools == arena.total_pools ? 1 : 0;
  heap.free_bytes += arena.free_pools * geometry_.pool_bytes;
  const auto add_free_pages = [&](std::uint64_t from, std::uint64_t to) {
    if (page_map != nullptr) {
      heap.free_pages_bytes = heap.free_pages_bytes.value_or(0) + page_map->resident_bytes(from, to);
    }
  };
  if (page_map != nullptr) {
    heap.resident_bytes = heap.resident_bytes.value_or(0) + page_map->resident_bytes(arena.address, end);
  }
  std::uint64_t free_pools = (end - arena.pool_address) / geometry_.pool_bytes;
  add_free_pages(arena.pool_address, end);
  for (std::uint64_t at = first_pool(arena, geometry_); at < arena.pool_address; at += geometry_.pool_bytes) {
    PoolHeader pool{};
    if (!memory_.read(at, &pool, sizeof pool) || !fits(pool, number, geometry_)) {
      heap.consistent = false;
      continue;
    }
    if (pool.count == 0) {
      ++free_pools;
      add_free_pages(at, at + geometry_.pool_bytes);
      continue;
    }
    SizeClass& of_size = classes[pool.size_index];
    const std::uint64_t blocks =
        (geometry_.pool_bytes - sizeof pool) / ((pool.size_index + std::uint64_t{1}) * kAlignment);
    ++of_size.spans;
    of_size.live_blocks += pool.count;
    of_size.free_blocks += blocks - pool.count;
  }
  heap.consistent = heap.consistent && free_pools == arena.free_pools;
}

// Finds the interpreter by the names of mapped files: libpython3.11.so.1.0, python3.11, or, where
// an executable has another name, cpython-311 in the name of an extension module.
std::optional<Interpreter> find_interpreter(const Memory& memory, const std::vector<Mapping>& mappings) {
  static const std::regex program("(lib)?python3\\.([0-9]+)([a-z]*)(\\.so.*)?");
  static const std::regex extension(".*\\.cpython-3([0-9]+)([a-z]*)-.*\\.so");
  std::array<char, PATH_MAX> target{};
  const ssize_t length =
      ::readlink(("/proc/" + std::to_string(memory.pid()) + "/exe").c_str(), target.data(), target.size());
  const std::string executable(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
  std::optional<Interpreter> found;
  std::smatch parts;
  for (const Mapping& mapping : mappings) {
    std::string base = mapping.path.substr(mapping.path.rfind('/') + 1);
    if (base.size() > kDeleted.size() && base.ends_with(kDeleted)) {  // replaced by an update, for example
      base.resize(base.size() - kDeleted.size());
    }
    const bool named = std::regex_match(base, parts, program);
    const bool library = named && parts[1].matched && parts[4].matched;
    // Not only the executable: a program may be started through the dynamic linker.
    const bool itself = named && !parts[1].matched && !parts[4].matched;
    const bool module = !named && !found && std::regex_match(base, parts, extension);
    if (!library && !itself && !module) {
      continue;
    }
    const std::string minor = module ? parts[1].str() : parts[2].str();
    const std::string flags = module ? parts[2].str() : parts[3].str();
    const bool free_threaded = flags.find('t') != std::string::npos;
    if (minor.size() > 2 || std::stoi(minor) < kOldestMinor || std::stoi(minor) > kNewestMinor) {
      continue;
    }
    found = Interpreter{"CPython 3." + minor + (free_threaded ? "t" : ""), module ? executable : mapping.path,
                        free_threaded};
    if (library) {
      break;
    }
  }
  return found;
}

// Whether the environment turns pymalloc off.
bool without_pymalloc(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t at = 0; at < all.size(); at += std::strlen(all.c_str() + at) + 1) {
    const std::string variable = all.c_str() + at;
    if (variable.rfind("PYTHONMALLOC=malloc", 0) == 0 || variable.rfind("PYTHONMALLOC=mimalloc", 0) == 0) {
      return true;
    }
  }
  return false;
}

// Collects the words in an interpreter's writable data that point to memory without a file.
std::unordered_set<std::uint64_t> pointers(const Memory& memory, const PageMap& page_map,
                                           const std::vector<Mapping>& mappings, const std::string& file) {
  const auto anonymous = [](const Mapping& mapping) {
    return mapping.writable &&
           (mapping.path.empty() || mapping.path == "[heap]" || mapping.path.rfind("[anon", 0) == 0);
  };
  const auto into_anonymous = [&](std::uint64_t address) {
    const auto behind =
        std::upper_bound(mappings.begin(), mappings.end(), address,
                         [](std::uint64_t value, const Mapping& one) { return value < one.begin; });
    return behind != mappings.begin() && address < std::prev(behind)->end && anonymous(*std::prev(behind));
  };
  std::unordered_set<std::uint64_t> found;
  std::vector<std::uint64_t> words(page_map.page_bytes() / sizeof(std::uint64_t));
  bool of_file = false;
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    const Mapping& mapping = mappings[i];
    // Data that begins as zeros lies behind the file's data, in a mapping without a file.
    of_file =
        mapping.path == file || (of_file && mapping.path.empty() && mapping.begin == mappings[i - 1].end);
    if (!of_file || !mapping.writable) {
      continue;
    }
    const std::vector<Page> pages = page_map.pages(mapping.begin, mapping.end);
    for (std::size_t page = 0; page < pages.size(); ++page) {
      if ((pages[page] == Page::kNone && page_map.readable()) ||
          !memory.read(mapping.begin + page * page_map.page_bytes(), words.data(), page_map.page_bytes())) {
        continue;
      }
      for (const std::uint64_t word : words) {
        if (word % kAlignment == 0 && into_anonymous(word)) {
          found.insert(word);
        }
      }
    }
  }
  return found;
}

// Finds the array of arena objects: of several, the one with most arenas.
std::optional<ArenaArray> find_arenas(const Memory& memory, const PageMap& page_map,
                                      const std::vector<Mapping>& mappings, const std::string& file) {
  std::optional<ArenaArray> best;
  for (const std::uint64_t address : pointers(memory, page_map, mappings, file)) {
    for (const Geometry& geometry : kGeometries) {
      ArenaArray array(memory, address, geometry);
      if (array.read() && (!best || array.arenas() > best->arenas())) {
        best.emplace(array);
      }
    }
  }
  return best;
}

}  // namespace

std::optional<PythonHeap> read_cpython(const Memory& memory) {
  const std::vector<Mapping> mappings = memory.mappings();
  const std::optional<Interpreter> interpreter = find_interpreter(memory, mappings);
  if (!interpreter) {
    return std::nullopt;
  }
  const PageMap page_map(memory.pid());
  PythonHeap none;
  none.name = interpreter->name;
  std::optional<ArenaArray> arenas = find_arenas(memory, page_map, mappings, interpreter->file);
  if (!arenas) {
    if (!interpreter->free_threaded && !without_pymalloc(memory.pid())) {
      return std::nullopt;
    }
    none.consistent = true;
    none.resident_bytes = none.free_pages_bytes = 0;
    return none;
  }
  PythonHeap heap = none;
  bool consistent = false;
  for (int i = 0; i < kMaxPasses && !consistent; ++i) {
    // find_arenas() has read them for the first pass. A read fails while the interpreter changes
    // the array; the pass before tells more than none.
    if (i > 0 && !arenas->read()) {
      continue;
    }
    PythonHeap again = none;
    arenas->count(page_map.readable() ? &page_map : nullptr, again);
    consistent = again.consistent && again.arenas == heap.arenas && again.live_bytes == heap.live_bytes &&
                 again.free_bytes == heap.free_bytes;
    heap = std::move(again);
  }
  heap.consistent = consistent;
  return heap;
}

}  // namespace heapwright::diagnose
