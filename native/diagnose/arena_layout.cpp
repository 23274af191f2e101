#include "arena_layout.h"

#include <cstring>
#include <string_view>

namespace heapwright::diagnose {
namespace {

constexpr std::size_t kMaxArenas = 1 << 16;
constexpr std::uint64_t kMaxBinsOffset = 256;
constexpr std::uint64_t kMaxData = 64 << 20;  // of one file's writable data
constexpr std::uint64_t kWord = sizeof(std::uint64_t);

// A mapping's bytes that are in memory; the others read as zero, so that reading touches nothing.
std::vector<std::uint64_t> resident_words(const Memory& memory, const PageMap& page_map,
                                          const Mapping& mapping) {
  std::vector<std::uint64_t> words((mapping.end - mapping.begin) / kWord);
  const std::vector<PageMap::Page> pages = page_map.pages(mapping.begin, mapping.end);
  const std::uint64_t page = page_map.page_bytes();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    if (pages[i] == PageMap::Page::kResident) {
      (void)memory.read(mapping.begin + i * page, &words[i * page / kWord], page);
    }
  }
  return words;
}

// Follows the ring of arenas from the one whose bins are at `bins`, which is the main arena. The
// offset of the bins is not known: it must be the same in all arenas.
std::optional<ArenaLayout> follow_ring(const Memory& memory, std::uint64_t bins) {
  for (std::uint64_t offset = kWord; offset <= kMaxBinsOffset; offset += kWord) {
    ArenaLayout layout{.main = bins - offset, .bins_offset = offset, .arenas = {}};
    std::uint64_t at = layout.main;
    do {
      layout.arenas.push_back(at);
      at = memory.word(layout.next(at)).value_or(0);
    } while (at != 0 && at % kWord == 0 && at != layout.main && layout.arenas.size() < kMaxArenas);
    if (at == layout.main) {
      return layout;
    }
  }
  return std::nullopt;
}

std::optional<ArenaLayout> find_in(const Memory& memory, const PageMap& page_map, const Mapping& mapping) {
  const std::vector<std::uint64_t> words = resident_words(memory, page_map, mapping);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::uint64_t at = mapping.begin + i * kWord;
    if (words[i] != at - 16 || words[i + 1] != at - 16) {
      continue;
    }
    for (std::uint64_t bin = 0; bin < ArenaLayout::kBins && at - 16 * bin > mapping.begin; ++bin) {
      if (const auto layout = follow_ring(memory, at - 16 * bin)) {
        return layout;
      }
    }
  }
  return std::nullopt;
}

// Whether a mapping may be the writable data of a program or library that holds a malloc: its data,
// or the zero-initialised part behind that.
bool may_hold_arena(const std::vector<Mapping>& mappings, std::size_t i) {
  const Mapping& mapping = mappings[i];
  if (!mapping.writable || !mapping.private_ || mapping.end - mapping.begin > kMaxData) {
    return false;
  }
  return mapping.path.starts_with('/') ||
         (i > 0 && mapping.path.empty() && mappings[i - 1].path.starts_with('/') &&
          mappings[i - 1].end == mapping.begin);
}

}  // namespace

std::optional<ArenaLayout> find_arenas(const Memory& memory, const PageMap& page_map,
                                       const std::vector<Mapping>& mappings) {
  // libc first: a ring found elsewhere may belong to a copy that is not used.
  for (const bool libc : {true, false}) {
    for (std::size_t i = 0; i < mappings.size(); ++i) {
      const std::string_view path = mappings[i].path;
      const bool is_libc =
          path.find("/libc.so") != std::string_view::npos || path.find("/libc-2") != std::string_view::npos;
      if (is_libc == libc && may_hold_arena(mappings, i)) {
        if (auto layout = find_in(memory, page_map, mappings[i])) {
          return layout;
        }
      }
    }
  }
  return std::nullopt;
}

// malloc_par, from its counts of mapped blocks on (older and newer versions have other fields
// before):
//   int n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn_threshold | size_t mmapped_mem, max_mmapped_mem |
//   char* sbrk_base
std::optional<MappedBlocks> find_mapped_blocks(const Memory& memory, const PageMap& page_map,
                                               const ArenaLayout& layout,
                                               const std::vector<Mapping>& mappings) {
  const Mapping* heap = nullptr;
  const Mapping* data = nullptr;
  for (const Mapping& mapping : mappings) {
    heap = mapping.path == "[heap]" ? &mapping : heap;
    data = mapping.begin <= layout.main && layout.main < mapping.end ? &mapping : data;
  }
  if (data == nullptr) {
    return std::nullopt;
  }
  const std::vector<std::uint64_t> words = resident_words(memory, page_map, *data);
  const auto* const bytes = reinterpret_cast<const char*>(words.data());
  constexpr std::size_t kInt = 4;
  constexpr std::int32_t kDefaultMax = 65536;
  for (std::size_t at = 0; at + 48 <= words.size() * kWord; at += kInt) {
    std::int32_t counts[4];  // NOLINT(modernize-avoid-c-arrays)
    std::uint64_t sizes[3];  // NOLINT(modernize-avoid-c-arrays)
    std::memcpy(counts, bytes + at, sizeof counts);
    const std::size_t behind = (at + sizeof counts + kWord - 1) / kWord * kWord;
    std::memcpy(sizes, bytes + behind, sizeof sizes);
    // Setting n_mmaps_max also sets no_dyn_threshold.
    const bool limit = counts[1] >= 0 && (counts[1] == kDefaultMax || counts[3] == 1);
    // Without address space randomisation the heap begins within the page before its mapping.
    const std::uint64_t page = page_map.page_bytes();
    const bool base = heap != nullptr
                          ? sizes[2] + page > heap->begin && sizes[2] < heap->end && sizes[2] % 16 == 0
                          : sizes[2] == 0;
    if (base && limit && counts[0] >= 0 && counts[2] >= counts[0] && counts[3] >= 0 && counts[3] <= 1 &&
        sizes[0] % page == 0 && sizes[0] >= static_cast<std::uint64_t>(counts[0]) * page &&
        sizes[1] >= sizes[0] && (counts[0] == 0) == (sizes[0] == 0)) {
      return MappedBlocks{static_cast<std::uint64_t>(counts[0]), sizes[0]};
    }
  }
  return std::nullopt;
}

}  // namespace heapwright::diagnose
