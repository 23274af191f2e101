#include "mapped_blocks.h"

#include <algorithm>
#include <array>

namespace heapwright::diagnose {
namespace {

constexpr std::uint64_t kFlags = 7;
constexpr std::uint64_t kIsMapped = 2;
constexpr std::uint64_t kHugePages = 1;   // a flag in the word before the size, since 2.43
constexpr std::uint64_t kMaxUnused = 16;  // bytes at the end of the mapping, since 2.43
// Pages without a block that the thorough search looks at, in about a second: 2 GiB of 4 KiB each.
constexpr std::uint64_t kMaxOtherPages = 1 << 19;

using Header = std::array<std::uint64_t, 2>;  // of a chunk: the word before it, and its size with flags

class MappedSearch {
 public:
  MappedSearch(const Memory& memory, const PageMap& page_map, const MappedBlocks& expected)
      : memory_(memory), page_map_(page_map), expected_(expected) {}

  // Looks at the start of each mapping, and on behind each block; if `thorough`, at each page.
  std::optional<std::uint64_t> run(const std::vector<Mapping>& mappings, bool thorough) {
    MappedBlocks found;
    std::uint64_t resident = 0;
    std::uint64_t others = 0;
    for (const Mapping& mapping : mappings) {
      if (!mapping.path.empty() || !mapping.writable || !mapping.private_) {
        continue;
      }
      for (std::uint64_t at = mapping.begin; at < mapping.end;) {
        if (found.blocks == expected_.blocks || others > kMaxOtherPages) {
          break;
        }
        const std::uint64_t size = block_at(at, mapping.end, thorough ? Memory::kMaxPieces : 1);
        if (size != 0) {
          ++found.blocks;
          found.bytes += size;
          resident += page_map_.resident_bytes(at, at + size);
        } else if (!thorough) {
          break;
        } else {
          ++others;
        }
        at += size != 0 ? size : page_map_.page_bytes();
      }
    }
    const bool all = found.blocks == expected_.blocks && found.bytes == expected_.bytes;
    return all ? std::optional(resident) : std::nullopt;
  }

 private:
  // The size of the block whose mapping begins at an address; 0 if none does.
  [[nodiscard]] std::uint64_t block_at(std::uint64_t at, std::uint64_t end, std::uint64_t window_pages) {
    const std::uint64_t page = page_map_.page_bytes();
    if (at < window_begin_ || at >= window_end_) {
      read_window(at, std::min(end, at + window_pages * page));
    }
    const Header& header = headers_[(at - window_begin_) / page];
    const std::uint64_t chunk = header[1] & ~kFlags;
    const std::uint64_t size = (chunk + page - 1) / page * page;
    const bool block = header[0] <= kHugePages && (header[1] & kFlags) == kIsMapped &&
                       size - chunk <= kMaxUnused && size <= end - at;
    return block ? size : 0;
  }

  // Reads the headers of all pages from `begin` to `end` that are in memory; the others are zero.
  void read_window(std::uint64_t begin, std::uint64_t end) {
    const std::vector<PageMap::Page> states = page_map_.pages(begin, end);
    std::vector<std::uint64_t> resident;
    for (std::size_t i = 0; i < states.size(); ++i) {
      if (states[i] == PageMap::Page::kResident) {
        resident.push_back(begin + i * page_map_.page_bytes());
      }
    }
    const std::vector<Header> found = memory_.pairs(resident);
    headers_.assign(states.size(), {});
    for (std::size_t i = 0; i < resident.size(); ++i) {
      headers_[(resident[i] - begin) / page_map_.page_bytes()] = found[i];
    }
    window_begin_ = begin;
    window_end_ = end;
  }

  const Memory& memory_;
  const PageMap& page_map_;
  const MappedBlocks& expected_;
  std::uint64_t window_begin_ = 0;
  std::uint64_t window_end_ = 0;
  std::vector<Header> headers_;  // of the window's pages
};

}  // namespace

std::optional<std::uint64_t> resident_of_mapped(const Memory& memory, const PageMap& page_map,
                                                const std::vector<Mapping>& mappings,
                                                const MappedBlocks& expected) {
  MappedSearch search(memory, page_map, expected);
  if (const auto found = search.run(mappings, false)) {
    return found;
  }
  // The thorough search ends with the last block, so it leaves large heaps of runtimes to the end.
  std::vector<Mapping> by_size = mappings;
  std::sort(by_size.begin(), by_size.end(),
            [](const Mapping& a, const Mapping& b) { return a.end - a.begin < b.end - b.begin; });
  return search.run(by_size, true);
}

}  // namespace heapwright::diagnose
