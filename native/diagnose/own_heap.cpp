// Adds up the findings of the passes over a heap, and counts its free pages. See own_heap.h.
#include "own_heap.h"

#include <algorithm>
#include <bit>
#include <map>

#include "own_layout.h"
#include "own_pass.h"
#include "page_map.h"

namespace heapwright::diagnose {

namespace {

using alloc::HeapLayout;
using Page = PageMap::Page;

constexpr int kMaxPasses = 6;
constexpr std::uint64_t kPurgeUnits = 16;  // bits of `purged_pages` in a superblock

std::uint64_t purge_unit_bytes(const HeapLayout& layout, std::uint64_t page_bytes) {
  return std::max(page_bytes, layout.superblock_bytes / kPurgeUnits);
}

// Returns the bytes on purged pages that lie before the first block of a superblock or behind the last.
std::uint64_t purged_ends(const Described& superblock, std::uint64_t superblock_bytes,
                          std::uint64_t purge_unit) {
  const std::uint64_t blocks_end = superblock.first + std::uint64_t{superblock.carved} * superblock.size;
  const auto last_page = superblock_bytes / purge_unit - 1;
  const std::uint64_t before = (superblock.purged_pages & 1U) != 0 ? superblock.first : 0;
  return before + ((superblock.purged_pages >> last_page & 1U) != 0 ? superblock_bytes - blocks_end : 0);
}

std::uint64_t free_blocks(const Described& superblock, bool hardened) {
  if (hardened) {
    return superblock.carved - superblock.allocated;
  }
  const std::uint64_t free =
      std::uint64_t{superblock.in_list} + superblock.in_queue + superblock.in_caches + superblock.in_batches;
  return std::min<std::uint64_t>(free, superblock.carved);
}

// Counts the bytes of a heap's memory that are on pages in memory and belong to no live block.
class PageCounter {
 public:
  PageCounter(const Memory& memory, const PageMap& page_map, const HeapLayout& layout, const Pass& pass)
      : memory_(memory),
        page_map_(page_map),
        layout_(layout),
        pass_(pass),
        contents_(layout.superblock_bytes) {}

  // Adds the figures about pages to `heap`.
  void count(ClassHeap& heap);

 private:
  void count_free(std::uint64_t begin, std::uint64_t end);
  void count_superblock(const Described& superblock, bool hardened);
  [[nodiscard]] bool read_resident(std::uint64_t address, const std::vector<Page>& pages);
  [[nodiscard]] std::vector<bool> read_bits(const Described& superblock, std::uint64_t begin,
                                            std::uint64_t bytes);
  [[nodiscard]] std::vector<bool> find_free(const Described& superblock, bool hardened);
  bool follow(const Described& superblock, std::uint64_t first, std::uint32_t count, std::vector<bool>& free);

  const Memory& memory_;
  const PageMap& page_map_;
  const HeapLayout& layout_;
  const Pass& pass_;
  std::vector<char> contents_;  // of the current superblock
  std::uint64_t resident_ = 0;
  std::uint64_t free_pages_ = 0;
  std::uint64_t releasable_ = 0;
  bool sound_ = true;
};

void PageCounter::count(ClassHeap& heap) {
  const bool hardened = layout_.marks_begin != 0;
  const std::uint64_t map_low = value_at(memory_, layout_.map_low);
  if (map_low != 0 && map_low <= pass_.region_begin) {
    resident_ = page_map_.resident_bytes(map_low, pass_.region_begin + pass_.region_bytes);
  }
  for (std::size_t i = 2; i < pass_.heaps.size(); ++i) {  // the first two are in the library's data
    resident_ += page_map_.resident_bytes(pass_.heaps[i], pass_.heaps[i] + layout_.heap_bytes);
  }
  for (const auto& [address, bytes] : pass_.large) {
    resident_ += page_map_.resident_bytes(address, address + bytes);
  }
  for (const auto& [address, bytes] : pass_.kept) {
    resident_ += page_map_.resident_bytes(address, address + bytes);
    count_free(address, address + bytes);
  }
  for (const std::uint64_t address : pass_.empty) {
    count_free(address, address + layout_.superblock_bytes);
  }
  for (const Described& superblock : pass_.superblocks) {
    if (superblock.kind == layout_.kind_blocks) {
      count_superblock(superblock, hardened);
    } else {
      const bool live = superblock.kind == layout_.kind_span;
      count_free(superblock.address + (live ? superblock.size : 0),
                 superblock.address + std::uint64_t{superblock.length} * layout_.superblock_bytes);
    }
  }
  heap.resident_bytes = resident_;
  heap.free_pages_bytes = free_pages_;
  heap.releasable_bytes = releasable_;
  heap.consistent = heap.consistent && sound_;
}

// Counts a range of whole pages without any live block.
void PageCounter::count_free(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t bytes = page_map_.resident_bytes(begin, end);
  free_pages_ += bytes;
  releasable_ += bytes;
}

void PageCounter::count_superblock(const Described& superblock, bool hardened) {
  const std::uint64_t page = page_map_.page_bytes();
  const std::uint64_t bytes = layout_.superblock_bytes;
  const std::uint64_t blocks = free_blocks(superblock, hardened);
  if (blocks * superblock.size + (bytes - std::uint64_t{superblock.carved} * superblock.size) < page) {
    releasable_ += blocks * superblock.size;  // no page can be wholly free
    return;
  }
  const std::vector<Page> pages = page_map_.pages(superblock.address, superblock.address + bytes);
  if (blocks != 0 && !hardened && !read_resident(superblock.address, pages)) {
    sound_ = false;
    return;
  }
  const std::vector<bool> free = find_free(superblock, hardened);
  std::vector<std::uint64_t> live_bytes(pages.size());
  for (std::uint64_t number = 0; number < superblock.carved; ++number) {
    std::uint64_t begin = superblock.first + number * superblock.size;
    for (const std::uint64_t end = begin + superblock.size; !free[number] && begin < end;) {
      const std::uint64_t next = std::min(end, (begin / page + 1) * page);
      live_bytes[begin / page] += next - begin;
      begin = next;
    }
  }
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (pages[i] == Page::kResident) {
      free_pages_ += live_bytes[i] == 0 ? page : 0;
      releasable_ += page - live_bytes[i];
    }
  }
}

// Reads those pages of a superblock that hold memory. The others read as zero.
bool PageCounter::read_resident(std::uint64_t address, const std::vector<Page>& pages) {
  const std::uint64_t page = page_map_.page_bytes();
  std::fill(contents_.begin(), contents_.end(), '\0');
  for (std::size_t i = 0; i < pages.size();) {
    std::size_t end = i;
    while (end < pages.size() && pages[end] != Page::kNone) {
      ++end;
    }
    if (end > i && !memory_.read(address + i * page, contents_.data() + i * page, (end - i) * page)) {
      return false;
    }
    i = end + 1;
  }
  return true;
}

// Returns the bits of a superblock that its chunk holds from `begin` on, `bytes` for each
// superblock.
std::vector<bool> PageCounter::read_bits(const Described& superblock, std::uint64_t begin,
                                         std::uint64_t bytes) {
  const std::uint64_t chunk_bytes = std::uint64_t{layout_.superblock_bytes} * layout_.superblocks_in_chunk;
  const std::uint64_t index = superblock.address % chunk_bytes / layout_.superblock_bytes;
  std::vector<char> packed(bytes);
  sound_ = memory_.read(superblock.address - index * layout_.superblock_bytes + begin + index * bytes,
                        packed.data(), packed.size()) &&
           sound_;
  std::vector<bool> bits(bytes * 8);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = (static_cast<unsigned char>(packed[i / 8]) >> i % 8 & 1U) != 0;
  }
  return bits;
}

// Returns for each carved block whether it is free.
std::vector<bool> PageCounter::find_free(const Described& superblock, bool hardened) {
  std::vector<bool> free(superblock.carved);
  if (hardened) {
    const std::vector<bool> marks = read_bits(superblock, layout_.marks_begin, layout_.marks_bytes);
    for (std::size_t number = 0; number < free.size(); ++number) {
      free[number] = !marks[(superblock.first + number * superblock.size) / 16];
    }
    return free;
  }
  if (superblock.with_bit != 0) {
    const std::vector<bool> bits = read_bits(superblock, layout_.free_bits_begin, layout_.free_bits_bytes);
    std::copy_n(bits.begin(), free.size(), free.begin());
  }
  const std::uint64_t unit = purge_unit_bytes(layout_, page_map_.page_bytes());
  std::uint32_t not_in_list = 0;
  for (std::size_t number = 0; number < free.size(); ++number) {
    const std::uint64_t begin = superblock.first + number * superblock.size;
    for (std::uint64_t i = begin / unit; i <= (begin + superblock.size - 1) / unit; ++i) {
      free[number] = free[number] || (superblock.purged_pages >> i & 1U) != 0;
    }
    not_in_list += free[number] ? 1 : 0;
  }
  const auto held = std::lower_bound(pass_.held.begin(), pass_.held.end(), superblock.address);
  for (auto block = held; block != pass_.held.end() && *block < superblock.address + layout_.superblock_bytes;
       ++block) {
    const std::uint64_t number = block_number(superblock, *block);
    if (number < free.size()) {
      free[number] = true;
    }
  }
  const std::uint64_t queued = superblock.first_queued == 0
                                   ? 0
                                   : superblock.address + (superblock.first_queued - 1) * std::uint64_t{16};
  sound_ = (superblock.with_bit == 0 || not_in_list == superblock.with_bit) &&
           not_in_list <= superblock.in_list &&
           follow(superblock, superblock.free_list, superblock.in_list - not_in_list, free) &&
           follow(superblock, queued, superblock.in_queue, free) && sound_;
  return free;
}

// Follows a list of `count` blocks in the current superblock. Returns false if it is not one.
bool PageCounter::follow(const Described& superblock, std::uint64_t first, std::uint32_t count,
                         std::vector<bool>& free) {
  for (std::uint64_t block = first; count > 0; --count) {
    const std::uint64_t offset = block - superblock.address;
    const std::uint64_t number = block_number(superblock, block);
    if (number >= free.size() || !begins_block(superblock, block) || free[number]) {
      return false;
    }
    free[number] = true;
    block = field<std::uint64_t>(contents_.data(), offset);
  }
  return true;
}

// Adds up what a pass found.
ClassHeap summary(const Pass& pass, const HeapLayout& layout, std::uint64_t page_bytes) {
  const bool hardened = layout.marks_begin != 0;
  const std::uint64_t purge_unit = purge_unit_bytes(layout, page_bytes);
  ClassHeap heap;
  std::map<std::uint64_t, SizeClass> classes;
  std::uint64_t cached = 0;
  std::uint64_t waiting = 0;
  std::uint64_t purged_blocks = 0;  // bytes of blocks on purged pages
  for (const Described& superblock : pass.superblocks) {
    if (superblock.kind == layout.kind_span) {
      ++heap.span_blocks;
      heap.span_bytes += superblock.size;
    }
    if (superblock.kind != layout.kind_blocks) {
      continue;
    }
    SizeClass& of_size = classes[superblock.size];
    const std::uint64_t free = free_blocks(superblock, hardened);
    of_size.size = superblock.size;
    of_size.free_blocks += free;
    of_size.live_blocks += superblock.carved - free;
    ++of_size.spans;
    const std::uint64_t purged =
        static_cast<std::uint64_t>(std::popcount(superblock.purged_pages)) * purge_unit;
    heap.purged_bytes += purged;
    purged_blocks += purged - std::min(purged, purged_ends(superblock, layout.superblock_bytes, purge_unit));
    cached += std::uint64_t{superblock.in_caches} * superblock.size;
    waiting += (std::uint64_t{superblock.in_queue} + superblock.in_batches) * superblock.size;
  }
  if (!hardened) {
    heap.cached_bytes = cached;
    heap.waiting_bytes = waiting;
  }
  std::uint64_t quarantined_spans = 0;
  for (const Described& superblock : pass.superblocks) {
    quarantined_spans += superblock.kind == layout.kind_quarantined
                             ? superblock.length * std::uint64_t{layout.superblock_bytes}
                             : 0;
  }
  for (auto& [size, of_size] : classes) {
    of_size.live_bytes = of_size.live_blocks * size;
    of_size.free_bytes = of_size.free_blocks * size;
    heap.live_bytes += of_size.live_bytes;
    heap.free_bytes += of_size.free_bytes;
    heap.classes.push_back(of_size);
  }
  for (const auto& [address, bytes] : pass.large) {
    ++heap.mapped_blocks;
    heap.mapped_bytes += bytes;
  }
  for (const auto& [address, bytes] : pass.kept) {
    heap.kept_bytes += bytes;
  }
  heap.used_bytes = pass.used * layout.superblock_bytes;
  heap.empty_bytes = pass.dirty * layout.superblock_bytes;
  heap.quarantined_bytes = pass.quarantined;
  heap.live_bytes += heap.span_bytes + heap.mapped_bytes;
  heap.free_bytes += heap.empty_bytes + heap.kept_bytes + quarantined_spans;
  heap.free_bytes -= std::min(heap.free_bytes, purged_blocks);
  heap.heaps = pass.heaps.size() - 2 + (pass.threaded ? 0 : 1);
  return heap;
}

}  // namespace

std::optional<ClassHeap> read_own_heap(const Memory& memory) {
  const PageMap page_map(memory.pid());
  const std::optional<FoundLayout> found = find_layout(memory, page_map);
  if (!found) {
    return std::nullopt;
  }
  PassReader reader(memory, found->layout);
  Pass pass = reader.read();
  bool consistent = false;
  for (int i = 1; i < kMaxPasses && !consistent; ++i) {
    Pass again = reader.read();
    consistent = again.sound && again == pass;
    pass = std::move(again);
  }
  ClassHeap heap = summary(pass, found->layout, page_map.page_bytes());
  heap.allocator = found->layout.name;
  heap.evidence = "heap descriptor in " + found->file;
  heap.consistent = consistent;
  if (page_map.readable()) {
    PageCounter(memory, page_map, found->layout, pass).count(heap);
  }
  return heap;
}

}  // namespace heapwright::diagnose
