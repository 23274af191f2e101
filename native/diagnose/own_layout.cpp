// Searches writable data for descriptors of heaps, and checks them. See own_layout.h.
#include "own_layout.h"

#include <algorithm>

namespace heapwright::diagnose {

namespace {

using alloc::HeapLayout;

constexpr std::size_t kMaxHeapBytes = std::size_t{1} << 20U;
constexpr std::size_t kBytesOfBits = 8 * std::size_t{16};  // bytes of blocks that a byte of bits stands for
constexpr std::size_t kMaxSuperblockBytes = std::size_t{1} << 20U;

// Whether the offsets and sizes can be used without reading outside the structures that they
// describe.
bool usable(const HeapLayout& layout) {
  const std::size_t superblock = layout.superblock_bytes;
  const std::size_t description = layout.description_bytes;
  const std::size_t count = layout.superblocks_in_chunk;
  const auto in_description = [&](std::size_t offset, std::size_t bytes) {
    return offset + bytes <= description;
  };
  return layout.version == HeapLayout::kVersion && layout.bytes == sizeof layout && superblock != 0 &&
         superblock <= kMaxSuperblockBytes && (superblock & (superblock - 1)) == 0 && count > 1 &&
         count <= 64 && description != 0 && count * description <= superblock &&
         layout.queue_begin + count * layout.queue_bytes <= superblock &&
         layout.marks_begin + count * layout.marks_bytes <= superblock &&
         layout.free_bits_begin + count * layout.free_bits_bytes <= superblock &&
         (layout.marks_begin == 0 || layout.marks_bytes * kBytesOfBits >= superblock) &&
         (layout.free_bits_below == 0 || layout.free_bits_bytes * kBytesOfBits >= superblock) &&
         in_description(layout.chunk_free, 8) && in_description(layout.free_list, 8) &&
         in_description(layout.free_count, 4) && in_description(layout.carved, 4) &&
         in_description(layout.first_block, 2) && in_description(layout.size, 4) &&
         in_description(layout.length, 4) && in_description(layout.kind, 1) &&
         in_description(layout.purged_pages, 2) && layout.heap_bytes != 0 &&
         layout.heap_bytes <= kMaxHeapBytes && layout.list_bytes >= 8 && layout.batch_bytes >= 8 &&
         layout.batch_first + 8U <= layout.batch_bytes && layout.large_entry_bytes >= 16 &&
         layout.large_entry_size + 8U <= layout.large_entry_bytes &&
         std::find(std::begin(layout.name), std::end(layout.name), '\0') != std::end(layout.name);
}

// Collects the descriptors in one page.
void search_page(const Memory& memory, const Mapping& mapping, std::uint64_t page, std::vector<char>& bytes,
                 std::vector<FoundLayout>& found) {
  if (!memory.read(page, bytes.data(), bytes.size())) {
    return;
  }
  for (std::size_t at = 0; at + sizeof HeapLayout::kMagic <= bytes.size(); at += alignof(HeapLayout)) {
    if (std::memcmp(bytes.data() + at, HeapLayout::kMagic, sizeof HeapLayout::kMagic) != 0) {
      continue;
    }
    FoundLayout one{};
    one.file = mapping.path;
    if (memory.read(page + at, &one.layout, sizeof one.layout) &&
        reinterpret_cast<std::uint64_t>(one.layout.self) == page + at && usable(one.layout)) {
      found.push_back(one);
    }
  }
}

}  // namespace

std::optional<FoundLayout> find_layout(const Memory& memory, const PageMap& page_map) {
  std::vector<FoundLayout> found;
  std::vector<char> bytes(page_map.page_bytes());
  for (const Mapping& mapping : memory.mappings()) {
    if (!mapping.writable || !mapping.private_ || mapping.path.empty() || mapping.path.front() != '/') {
      continue;
    }
    const std::vector<PageMap::Page> pages = page_map.pages(mapping.begin, mapping.end);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      // The dynamic linker has written to the page of each descriptor; untouched pages stay
      // untouched.
      if (pages[i] != PageMap::Page::kNone || !page_map.readable()) {
        search_page(memory, mapping, mapping.begin + i * page_map.page_bytes(), bytes, found);
      }
    }
  }
  const auto in_use = [&](const FoundLayout& one) {
    return value_at(memory, one.layout.region_bytes) + value_at(memory, one.layout.large_bytes);
  };
  const auto best = std::max_element(found.begin(), found.end(), [&](const auto& left, const auto& right) {
    return in_use(left) < in_use(right);
  });
  if (best == found.end() || in_use(*best) == 0) {
    return std::nullopt;
  }
  return *best;
}

}  // namespace heapwright::diagnose
