#include "glibc_heap.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <iterator>
#include <optional>
#include <set>

#include "mapped_blocks.h"
#include "segment.h"
#include "thread_caches.h"

namespace heapwright::diagnose {
namespace {

constexpr std::uint64_t kMinChunk = 32;
constexpr std::uint64_t kChunkHeader = 48;  // size, links: malloc_trim does not give these back
constexpr std::uint64_t kFlags = 7;
constexpr std::uint64_t kPrevInUse = 1;
constexpr std::uint64_t kNonContiguous = 2;
constexpr int kAttempts = 4;
constexpr auto kTimeLimit = std::chrono::seconds(10);  // for all arenas, without their first walks
constexpr std::size_t kStepsToClock = 1024;            // between two looks at the clock
constexpr std::uint64_t kPartPages = 1 << 18;          // of a free chunk, between two looks at the clock
// HEAP_MAX_SIZE: 64 MiB, and four huge pages of 2 MiB or 1 GiB with glibc.malloc.hugetlb=2.
constexpr std::array<std::uint64_t, 3> kHeapBytes = {64ULL << 20, 8ULL << 20, 4ULL << 30};

class ArenaReader {
 public:
  ArenaReader(const Memory& memory, const PageMap& page_map, const ArenaLayout& layout,
              const std::vector<Mapping>& mappings, const Now& now, ThreadCaches& caches)
      : memory_(memory),
        page_map_(page_map),
        layout_(layout),
        mappings_(mappings),
        now_(now),
        caches_(caches),
        deadline_(now() + kTimeLimit) {}

  Arena read(std::uint64_t address) {
    Arena arena;
    for (int attempt = 0; attempt < kAttempts && (attempt == 0 || !late()); ++attempt) {
      arena = {};
      first_attempt_ = attempt == 0;
      mangled_.reset();
      arena.address = address;
      top_ = memory_.word(layout_.top(address)).value_or(0);
      arena.system = memory_.word(layout_.system_mem(address)).value_or(0);
      arena.threads = memory_.word(layout_.attached_threads(address)).value_or(0);
      if (top_ == 0 || top_ == layout_.top(address)) {  // no block was ever allocated
        arena.resident = 0;
        arena.live_blocks = 0;
        break;
      }
      // A list is followed in one go, while it is short: before the walk.
      arena.consistent = !late() && (!layout_.has_fastbins() || add_fastbins(arena)) &&
                         (address == layout_.main ? add_main(arena) : add_heaps(arena));
      if (arena.consistent) {
        break;
      }
    }
    return arena;
  }

  // A process that changes its heap, or means harm, may send the reader around for ever.
  [[nodiscard]] bool late() const { return now_() > deadline_; }

 private:
  // Adjacent free chunks. malloc_trim joins those of fastbins with their neighbours before it looks
  // for whole pages.
  struct Run {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    bool operator<(const Run& other) const { return begin < other.begin; }
  };

  void add_free(Arena& arena, std::uint64_t chunk, std::uint64_t size) const {
    arena.free += size;
    ++arena.free_chunks;
    if (chunk == top_) {
      arena.top = size;
    } else {
      arena.largest_free = std::max(arena.largest_free, size);
    }
  }

  void add_pages(Arena& arena, const Run& run, const Segment::Pages& pages) const {
    arena.free_pages += pages.resident;
    arena.absent += pages.absent;
    const bool with_top = run.begin <= top_ && top_ < run.end;
    arena.trimmable += !with_top || arena.address == layout_.main ? pages.resident : 0;
  }

  bool add_fastbins(Arena& arena) {
    std::size_t steps = 0;
    fast_.clear();
    for (std::uint64_t i = 0; i < 10; ++i) {
      const std::uint64_t size = (i + 2) * 16;
      auto chunk = memory_.word(layout_.fastbins(arena.address) + 8 * i);
      while (chunk && *chunk != 0) {
        ++steps;
        if (!is_fast(*chunk, size) || steps > arena.system / kMinChunk ||
            (steps % kStepsToClock == 0 && late())) {
          return false;
        }
        arena.fast += size;
        arena.free += size;
        ++arena.free_chunks;
        fast_.push_back({*chunk, *chunk + size});
        chunk = next_fast(*chunk, size);
      }
      if (!chunk) {
        return false;
      }
    }
    std::sort(fast_.begin(), fast_.end());
    return true;
  }

  // Whether there may be a chunk of this size in a fastbin.
  [[nodiscard]] bool is_fast(std::uint64_t chunk, std::uint64_t size) const {
    const auto head = chunk % 16 == 0 ? memory_.word(chunk + 8) : std::nullopt;
    return head && (*head & ~kFlags) == size;
  }

  // Returns the next chunk of a fastbin, 0 at its end; nullopt if the link leads to no chunk.
  //
  // Links are stored as pointer ^ (address of the link >> 12) since 2.32, and plainly before. The
  // first link that leads to a chunk by only one of the two readings decides.
  std::optional<std::uint64_t> next_fast(std::uint64_t chunk, std::uint64_t size) {
    const auto link = memory_.word(chunk + 16);
    if (!link) {
      return std::nullopt;
    }
    const std::uint64_t clear = *link ^ ((chunk + 16) >> 12);
    if (*link == 0 || clear == 0) {
      return 0;
    }
    if (!mangled_) {
      const bool plain = is_fast(*link, size);
      if (plain == is_fast(clear, size)) {
        return plain ? std::optional(clear) : std::nullopt;
      }
      mangled_ = !plain;
    }
    return *mangled_ ? clear : *link;
  }

  bool add_main(Arena& arena) {
    const auto flags = memory_.word(layout_.flags(arena.address));
    const bool in_pieces = flags && (*flags & kNonContiguous) != 0;
    const std::uint64_t end = top_ + (memory_.word(top_ + 8).value_or(0) & ~kFlags);
    const Arena before = arena;
    std::uint64_t resident = 0;
    for (const Mapping& run : in_pieces ? std::vector<Mapping>() : heap_runs(mappings_, end)) {
      Segment segment(memory_, page_map_, run.begin, run.end);
      arena = before;
      arena.resident = segment.resident_bytes();
      if (walk(arena, segment, (run.begin + 15) / 16 * 16)) {
        return true;
      }
      resident += *arena.resident;
    }
    arena = before;
    const bool followed = follow_bins(arena);
    // The addresses of pieces are not known: all but absent free pages counts as resident.
    arena.resident = in_pieces ? arena.system - std::min(arena.system, arena.absent) : resident;
    return followed;
  }

  bool add_heaps(Arena& arena) {
    for (const std::uint64_t heap_bytes : kHeapBytes) {
      const std::uint64_t header = arena.address % heap_bytes;  // sizeof(heap_info)
      if (memory_.word(arena.address - header) == arena.address) {
        return add_heaps(arena, heap_bytes, header);
      }
    }
    return false;
  }

  bool add_heaps(Arena& arena, std::uint64_t heap_bytes, std::uint64_t header) {
    Arena before = arena;
    before.resident = 0;
    bool walked = true;
    std::set<std::uint64_t> seen;
    std::uint64_t heap = top_ / heap_bytes * heap_bytes;
    while (heap != 0) {
      const auto owner = memory_.word(heap);
      const auto previous = memory_.word(heap + 8);
      const auto size = memory_.word(heap + 16);
      if (!owner || !previous || !size || *owner != arena.address || *size > heap_bytes || late() ||
          !seen.insert(heap).second) {
        return false;
      }
      const bool first = heap / heap_bytes == arena.address / heap_bytes;
      const std::uint64_t chunk = first ? layout_.end(arena.address) : heap + header;
      Segment segment(memory_, page_map_, heap, heap + *size);
      *before.resident += segment.resident_bytes();
      caches_.add_heap(heap, heap + *size, arena.address);
      walked = walked && walk(arena, segment, (chunk + 15) / 16 * 16);
      heap = *previous;
    }
    if (walked) {
      arena.resident = before.resident;
      return true;
    }
    arena = before;
    return follow_bins(arena);
  }

  // Adds the free chunks from `chunk` to the top or to the end of the segment.
  //
  // A walk only moves forward, so it ends without a clock. The first one takes as long as the size
  // of the heap demands, and that time does not count.
  bool walk(Arena& arena, Segment& segment, std::uint64_t chunk) {
    if (!first_attempt_) {
      return walk_chunks(arena, segment, chunk);
    }
    const auto began = now_();
    const bool walked = walk_chunks(arena, segment, chunk);
    deadline_ += now_() - began;
    return walked;
  }

  bool walk_chunks(Arena& arena, Segment& segment, std::uint64_t chunk) {
    std::uint64_t& live_blocks = arena.live_blocks.emplace(arena.live_blocks.value_or(0));
    auto head = segment.word(chunk + 8);
    auto fast = std::lower_bound(fast_.begin(), fast_.end(), Run{chunk, 0});
    Run run;
    const auto add_run = [&] {
      add_pages(arena, run, segment.whole_pages(run.begin + kChunkHeader, run.end));
      run = {};
    };
    for (std::size_t steps = 1; head && chunk < segment.end(); ++steps) {
      if (!first_attempt_ && steps % kStepsToClock == 0 && late()) {
        return false;
      }
      const std::uint64_t size = *head & ~kFlags;
      if (chunk == top_) {
        add_free(arena, chunk, size);
        run = {run.end == chunk ? run.begin : chunk, chunk + size};
        add_run();
        return true;
      }
      if (size < kMinChunk) {  // the fence behind the last chunk of a heap
        add_run();
        return arena.address != layout_.main;
      }
      if (size % 16 != 0 || size > segment.end() - chunk) {
        return false;
      }
      const auto next = chunk + size < segment.end() ? segment.word(chunk + size + 8) : std::nullopt;
      while (fast != fast_.end() && fast->begin < chunk) {
        ++fast;
      }
      const bool in_bin = next && (*next & kPrevInUse) == 0;
      if (in_bin) {
        add_free(arena, chunk, size);
      } else {
        caches_.add_if_cache(segment, chunk, size);
      }
      if (in_bin || (fast != fast_.end() && fast->begin == chunk)) {
        run = {run.end == chunk ? run.begin : chunk, chunk + size};
      } else {
        ++live_blocks;
        add_run();
      }
      chunk += size;
      head = next;
    }
    add_run();
    return arena.address != layout_.main && chunk == segment.end();
  }

  // Adds the chunks in the bins, and the top.
  bool follow_bins(Arena& arena) {
    struct Links {
      std::uint64_t size, forward, back;
    };
    const auto add_run = [&](const Run& run) {
      const std::uint64_t size = run.end - run.begin;
      const auto pages = size > page_map_.page_bytes() ? pages_of(run.begin, size) : Segment::Pages{};
      if (pages) {
        add_pages(arena, run, *pages);
      }
      return pages.has_value();
    };
    std::vector<Run> beside_fast = fast_;  // chunks of fastbins and their neighbours
    const auto add = [&](std::uint64_t chunk, std::uint64_t size) {
      const Run run{chunk, chunk + size};
      if (is_beside_fast(run)) {
        beside_fast.push_back(run);
      } else if (!add_run(run)) {
        return false;
      }
      add_free(arena, chunk, size);
      return true;
    };
    for (std::uint64_t bin = 0; bin < ArenaLayout::kBins; ++bin) {
      const std::uint64_t head = layout_.bins(arena.address) + bin * 16 - 16;  // as a chunk
      std::uint64_t before = head;
      std::uint64_t chunk = memory_.word(head + 16).value_or(0);
      for (std::uint64_t steps = 0; chunk != head; ++steps) {
        Links links{};
        if (!memory_.read(chunk + 8, &links, sizeof links) || links.back != before ||
            (links.size & ~kFlags) > arena.system || steps > arena.system / kMinChunk ||
            (steps % kStepsToClock == kStepsToClock - 1 && late())) {
          return false;
        }
        if (!add(chunk, links.size & ~kFlags)) {
          return false;
        }
        before = chunk;
        chunk = links.forward;
      }
    }
    const auto head = memory_.word(top_ + 8);
    if (!head || (*head & ~kFlags) > arena.system || !add(top_, *head & ~kFlags)) {
      return false;
    }
    std::sort(beside_fast.begin(), beside_fast.end());
    Run run;
    for (const Run& next : beside_fast) {
      if (next.begin != run.end) {
        if (!add_run(run)) {
          return false;
        }
        run.begin = next.begin;
      }
      run.end = next.end;
    }
    return add_run(run);
  }

  [[nodiscard]] bool is_beside_fast(const Run& run) const {
    const auto after = std::lower_bound(fast_.begin(), fast_.end(), Run{run.end, 0});
    const auto before = std::lower_bound(fast_.begin(), fast_.end(), run);
    return (after != fast_.end() && after->begin == run.end) ||
           (before != fast_.begin() && std::prev(before)->end == run.begin);
  }

  // Counts the whole pages of a free chunk, a part at a time; nullopt if no mapping holds the
  // chunk, or at the limit of time.
  [[nodiscard]] std::optional<Segment::Pages> pages_of(std::uint64_t chunk, std::uint64_t size) const {
    // The heap may have grown since its mappings were read.
    if (!is_mapped(mappings_, chunk, size) && !is_mapped(memory_.mappings(), chunk, size)) {
      return std::nullopt;
    }
    Segment::Pages sum;
    const std::uint64_t page = page_map_.page_bytes();
    const std::uint64_t end = (chunk + size) / page * page;
    for (std::uint64_t from = (chunk + kChunkHeader + page - 1) / page * page; from < end;) {
      const std::uint64_t to = std::min(end, from + kPartPages * page);
      const Segment::Pages part = Segment(memory_, page_map_, from, to).whole_pages(from, to);
      sum.resident += part.resident;
      sum.absent += part.absent;
      from = to;
      if (from < end && late()) {
        return std::nullopt;
      }
    }
    return sum;
  }

  // Whether adjacent mappings hold a chunk.
  static bool is_mapped(const std::vector<Mapping>& mappings, std::uint64_t chunk, std::uint64_t size) {
    auto mapping = std::upper_bound(mappings.begin(), mappings.end(), chunk,
                                    [](std::uint64_t at, const Mapping& other) { return at < other.end; });
    std::uint64_t end = chunk;
    for (; mapping != mappings.end() && mapping->begin <= end && end - chunk < size; ++mapping) {
      end = mapping->end;
    }
    return end - chunk >= size;
  }

  const Memory& memory_;
  const PageMap& page_map_;
  const ArenaLayout& layout_;
  const std::vector<Mapping>& mappings_;
  const Now& now_;
  ThreadCaches& caches_;
  std::chrono::nanoseconds deadline_;
  bool first_attempt_ = true;
  std::uint64_t top_ = 0;
  std::optional<bool> mangled_;  // whether links in fastbins are
  std::vector<Run> fast_;        // chunks in fastbins, by address
};

}  // namespace

std::chrono::nanoseconds cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

std::optional<GlibcHeap> read_glibc_heap(const Memory& memory, const Now& now) {
  const PageMap page_map(memory.pid());
  const std::vector<Mapping> mappings = memory.mappings();
  const auto layout = find_arenas(memory, page_map, mappings);
  if (!layout || !page_map.readable()) {
    return std::nullopt;
  }
  GlibcHeap heap;
  ThreadCaches caches;
  ArenaReader reader(memory, page_map, *layout, mappings, now, caches);
  for (const std::uint64_t arena : layout->arenas) {
    heap.arenas.push_back(reader.read(arena));
  }
  const auto cached = caches.count(memory, [&reader] { return reader.late(); });
  for (Arena& arena : heap.arenas) {
    const auto bytes = cached.by_arena.find(arena.address == layout->main ? 0 : arena.address);
    const std::uint64_t live = arena.system - std::min(arena.system, arena.free);
    if (cached.caches != 0) {
      arena.cached = bytes == cached.by_arena.end() ? 0 : std::min(bytes->second, live);
    }
    arena.consistent = arena.consistent && cached.complete;
  }
  heap.mapped = find_mapped_blocks(memory, page_map, *layout, mappings);
  if (heap.mapped) {
    heap.mapped->resident = resident_of_mapped(memory, page_map, mappings, *heap.mapped);
  }
  return heap;
}

}  // namespace heapwright::diagnose
