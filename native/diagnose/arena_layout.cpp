#include "arena_layout.h"

#include <algorithm>
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

// Finds a main arena from which nothing was ever allocated. Its static values are zero, but for
// `next` and for the one thread attached to it.
std::optional<ArenaLayout> find_unused_in(const Memory& memory, const PageMap& page_map,
                                          const Mapping& mapping) {
  const std::vector<std::uint64_t> words = resident_words(memory, page_map, mapping);
  std::size_t zeros = 0;  // words of zero before words[i]
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    const std::uint64_t at = mapping.begin + i * kWord;
    const std::uint64_t before = at - words[i];  // of `next` in an arena that begins at its value
    if (words[i] != 0 && words[i] < at && before % kWord == 0 && before > ArenaLayout::kBinBytes &&
        before <= ArenaLayout::kBinBytes + kMaxBinsOffset && zeros >= before / kWord && words[i + 1] == 0 &&
        words[i + 2] == 1) {
      return ArenaLayout{
          .main = words[i], .bins_offset = before - ArenaLayout::kBinBytes, .arenas = {words[i]}};
    }
    zeros = words[i] == 0 ? zeros + 1 : 0;
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
  const auto is_libc = [](std::string_view path) {
    return path.find("/libc.so") != std::string_view::npos || path.find("/libc-2") != std::string_view::npos;
  };
  // libc first: a ring found elsewhere may belong to a copy that is not used.
  for (const bool libc : {true, false}) {
    for (std::size_t i = 0; i < mappings.size(); ++i) {
      if (is_libc(mappings[i].path) == libc && may_hold_arena(mappings, i)) {
        if (auto layout = find_in(memory, page_map, mappings[i])) {
          return layout;
        }
      }
    }
  }
  for (std::size_t i = 0; i < mappings.size(); ++i) {
    if (is_libc(mappings[i].path) && may_hold_arena(mappings, i)) {
      if (auto layout = find_unused_in(memory, page_map, mappings[i])) {
        return layout;
      }
    }
  }
  return std::nullopt;
}

std::vector<Mapping> heap_runs(const std::vector<Mapping>& mappings, std::uint64_t end) {
  std::vector<Mapping> runs;
  for (const Mapping& mapping : mappings) {
    const bool heap = mapping.path == "[heap]";
    const bool adjacent = !runs.empty() && runs.back().end == mapping.begin;
    const bool behind = mapping.path.empty() && mapping.writable && mapping.private_ && mapping.begin < end;
    if (adjacent && (heap || behind)) {
      runs.back().end = mapping.end;
    } else if (heap) {
      runs.push_back(mapping);
    }
  }
  return runs;
}

// malloc_par, from its counts of mapped blocks on (older and newer versions have other fields
// before):
//   int n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn_threshold | size_t mmapped_mem, max_mmapped_mem |
//   char* sbrk_base
std::optional<MappedBlocks> find_mapped_blocks(const Memory& memory, const PageMap& page_map,
                                               const ArenaLayout& layout,
                                               const std::vector<Mapping>& mappings) {
  const std::vector<Mapping> heap = heap_runs(mappings, 0);
  const bool unused = memory.word(layout.top(layout.main)).value_or(0) == 0;
  const Mapping* data = nullptr;
  for (const Mapping& mapping : mappings) {
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
    const auto begins_in = [&](const Mapping& run) {
      return sizes[2] + page > run.begin && sizes[2] < run.end && sizes[2] % 16 == 0;
    };
    const bool base =
        heap.empty() || unused ? sizes[2] == 0 : std::any_of(heap.begin(), heap.end(), begins_in);
    if (base && limit && counts[0] >= 0 && counts[2] >= counts[0] && counts[3] >= 0 && counts[3] <= 1 &&
        sizes[0] % page == 0 && sizes[0] >= static_cast<std::uint64_t>(counts[0]) * page &&
        sizes[1] >= sizes[0] && (counts[0] == 0) == (sizes[0] == 0)) {
      return MappedBlocks{static_cast<std::uint64_t>(counts[0]), sizes[0], std::nullopt};
    }
  }
  return std::nullopt;
}

}  // namespace heapwright::diagnose
