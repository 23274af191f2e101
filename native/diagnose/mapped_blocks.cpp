#include "mapped_blocks.h"

#include <array>

namespace heapwright::diagnose {
namespace {

constexpr std::uint64_t kFlags = 7;
constexpr std::uint64_t kIsMapped = 2;
constexpr std::uint64_t kHugePages = 1;   // a flag in the word before the size, since 2.43
constexpr std::uint64_t kMaxUnused = 16;  // bytes at the end of the mapping, since 2.43
// Pages without a block that the thorough search looks at: 4 GiB of pages of 4 KiB.
constexpr std::uint64_t kMaxOtherPages = 1 << 20;

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
        const std::uint64_t size = block_at(at, mapping.end);
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
  [[nodiscard]] std::uint64_t block_at(std::uint64_t at, std::uint64_t end) const {
    std::array<std::uint64_t, 2> header{};  // of the chunk: bytes before it, and its size
    const std::uint64_t page = page_map_.page_bytes();
    const auto state = page_map_.pages(at, at + page);
    if (state.empty() || state.front() != PageMap::Page::kResident ||
        !memory_.read(at, header.data(), sizeof header)) {
      return 0;
    }
    const std::uint64_t chunk = header[1] & ~kFlags;
    const std::uint64_t size = (chunk + page - 1) / page * page;
    const bool block = header[0] <= kHugePages && (header[1] & kFlags) == kIsMapped &&
                       size - chunk <= kMaxUnused && size <= end - at;
    return block ? size : 0;
  }

  const Memory& memory_;
  const PageMap& page_map_;
  const MappedBlocks& expected_;
};

}  // namespace

std::optional<std::uint64_t> resident_of_mapped(const Memory& memory, const PageMap& page_map,
                                                const std::vector<Mapping>& mappings,
                                                const MappedBlocks& expected) {
  MappedSearch search(memory, page_map, expected);
  const auto found = search.run(mappings, false);
  return found ? found : search.run(mappings, true);
}

}  // namespace heapwright::diagnose
