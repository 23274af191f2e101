// Reads chunks, heaps and large blocks by the offsets of the heap's descriptor. See own_pass.h.
#include "own_pass.h"

#include <algorithm>
#include <bit>

namespace heapwright::diagnose {

namespace {

constexpr std::size_t kMaxListBlocks = 1 << 14U;  // a longer list changed while it was read
constexpr std::size_t kMaxHeaps = 1 << 16U;
constexpr std::uint64_t kMaxEntries = 1 << 24U;  // in the table of large blocks
constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 46U;
constexpr std::uint64_t kPieceBytes = 4096;

// A list's word has 48 bits of address and 16 of length.
constexpr std::uint64_t address_in(std::uint64_t word) { return word % (std::uint64_t{1} << 48U); }

}  // namespace

Pass PassReader::read() {
  pass_ = {};
  link_pages_.clear();
  const std::uint64_t chunk = std::uint64_t{layout_.superblock_bytes} * layout_.superblocks_in_chunk;
  pass_.region_begin = value_at(memory_, layout_.region_base);
  pass_.region_bytes = pass_.region_begin == 0 ? 0 : value_at(memory_, layout_.region_bytes);
  pass_.used = value_at(memory_, layout_.used);
  pass_.dirty = value_at(memory_, layout_.dirty);
  const bool queues = layout_.queue_bytes >= sizeof(std::uint32_t);
  pass_.threaded = queues && value_at<std::uint8_t>(memory_, layout_.threaded) != 0;
  if (pass_.region_bytes > kMaxRegionBytes) {
    pass_.region_bytes = 0;
    pass_.sound = false;
  }
  numbers_.assign(pass_.region_bytes / layout_.superblock_bytes, 0);
  header_.resize(layout_.superblock_bytes);
  for (std::uint64_t offset = 0; offset + chunk <= pass_.region_bytes; offset += chunk) {
    read_chunk(pass_.region_begin + offset);
  }
  read_heaps();
  read_large();
  std::sort(pass_.held.begin(), pass_.held.end());
  return std::move(pass_);
}

void PassReader::read_chunk(std::uint64_t chunk) {
  // Only these parts: the pages between them may be inaccessible or untouched.
  const std::size_t count = layout_.superblocks_in_chunk;
  const auto read_part = [&](std::size_t begin, std::size_t bytes) {
    return memory_.read(chunk + begin, header_.data() + begin, bytes);
  };
  if (!read_part(0, count * layout_.description_bytes) ||
      (pass_.threaded && !read_part(layout_.queue_begin, count * layout_.queue_bytes)) ||
      (hardened() && !read_part(layout_.marks_begin, count * layout_.marks_bytes))) {
    pass_.sound = false;
    return;
  }
  const auto free = field<std::uint64_t>(header_.data(), layout_.chunk_free);
  for (std::size_t index = 1; index < count; ++index) {
    if ((free >> index & 1U) != 0) {
      pass_.empty.push_back(chunk + index * layout_.superblock_bytes);
    } else {
      describe(index, chunk);
    }
  }
}

void PassReader::describe(std::size_t index, std::uint64_t chunk) {
  const char* const at = header_.data() + index * layout_.description_bytes;
  Described found;
  found.address = chunk + index * layout_.superblock_bytes;
  found.kind = field<std::uint8_t>(at, layout_.kind);
  found.size = field<std::uint32_t>(at, layout_.size);
  if (found.kind == layout_.kind_span || found.kind == layout_.kind_quarantined) {
    found.length = field<std::uint32_t>(at, layout_.length);
    pass_.sound = pass_.sound && found.length != 0 && index + found.length <= layout_.superblocks_in_chunk &&
                  found.size <= std::uint64_t{found.length} * layout_.superblock_bytes;
    pass_.superblocks.push_back(found);
    return;
  }
  constexpr std::uint8_t kFree = 0;  // Kind::kFree
  if (found.kind == kFree) {         // the first superblock of a span that is kept whole (core/freed_spans.h)
    const auto length = field<std::uint32_t>(at, layout_.length);
    pass_.sound = pass_.sound && length != 0 && index + length <= layout_.superblocks_in_chunk;
    for (std::size_t i = 0; pass_.sound && i < length; ++i) {
      pass_.empty.push_back(found.address + i * layout_.superblock_bytes);
    }
    return;
  }
  if (found.kind != layout_.kind_blocks) {
    return;
  }
  found.free_list = field<std::uint64_t>(at, layout_.free_list);
  found.first = field<std::uint16_t>(at, layout_.first_block);
  found.carved = field<std::uint32_t>(at, layout_.carved);
  found.in_list = field<std::uint32_t>(at, layout_.free_count);
  const auto purged_or_bits = field<std::uint16_t>(at, layout_.purged_pages);
  if (found.size < layout_.free_bits_below) {
    found.with_bit = purged_or_bits;
  } else {
    found.purged_pages = purged_or_bits;
  }
  if (pass_.threaded) {
    const auto word = field<std::uint32_t>(header_.data() + layout_.queue_begin, index * layout_.queue_bytes);
    found.in_queue = word >> layout_.queue_count_shift & layout_.queue_count_mask;
    found.first_queued = word & layout_.queue_first_mask;
  }
  const char* const marks = header_.data() + layout_.marks_begin + index * layout_.marks_bytes;
  for (std::size_t i = 0; hardened() && i + 8 <= layout_.marks_bytes; i += 8) {
    found.allocated += static_cast<std::uint32_t>(std::popcount(field<std::uint64_t>(marks, i)));
  }
  if (found.size < 16 || found.first + std::uint64_t{found.carved} * found.size > layout_.superblock_bytes ||
      found.in_list > found.carved || found.allocated > found.carved) {
    pass_.sound = false;  // it is being put to another use
    return;
  }
  pass_.superblocks.push_back(found);
  numbers_[(found.address - pass_.region_begin) / layout_.superblock_bytes] =
      static_cast<std::uint32_t>(pass_.superblocks.size());
}

void PassReader::read_heaps() {
  const auto first = reinterpret_cast<std::uint64_t>(layout_.first_heap);
  const std::uint64_t next_created = offset_in_heap(layout_.first_next_created);
  pass_.heaps = {first, reinterpret_cast<std::uint64_t>(layout_.shared_heap)};
  for (std::uint64_t heap = value_at(memory_, layout_.created);
       heap != 0 && pass_.heaps.size() < kMaxHeaps;) {
    pass_.heaps.push_back(heap);
    std::uint64_t next = 0;
    pass_.sound = memory_.read(heap + next_created, &next, sizeof next) && pass_.sound;
    heap = next;
  }
  for (const std::uint64_t heap : pass_.heaps) {
    read_heap(heap);
  }
  if (hardened()) {
    pass_.quarantined += value_at(memory_, layout_.span_quarantine_bytes);
  }
}

void PassReader::read_heap(std::uint64_t address) {
  if (hardened()) {
    std::uint64_t bytes = 0;
    pass_.sound =
        memory_.read(address + offset_in_heap(layout_.first_quarantine_bytes), &bytes, sizeof bytes) &&
        pass_.sound;
    pass_.quarantined += bytes;
    return;
  }
  std::vector<char> lists(std::size_t{layout_.lists} * layout_.list_bytes);
  std::vector<char> depots(std::size_t{layout_.depots} * sizeof(std::uint64_t));
  std::vector<char> freed_by_others(std::size_t{layout_.freed_by_others} * sizeof(std::uint64_t));
  std::vector<char> batches(std::size_t{layout_.batches} * layout_.batch_bytes);
  if (!memory_.read(address + offset_in_heap(layout_.first_lists), lists.data(), lists.size()) ||
      !memory_.read(address + offset_in_heap(layout_.first_depots), depots.data(), depots.size()) ||
      !memory_.read(address + offset_in_heap(layout_.first_freed_by_others), freed_by_others.data(),
                    freed_by_others.size()) ||
      !memory_.read(address + offset_in_heap(layout_.first_batches), batches.data(), batches.size())) {
    pass_.sound = false;
    return;
  }
  for (std::size_t i = 1; i < layout_.lists; ++i) {
    hold_list(field<std::uint64_t>(lists.data(), i * layout_.list_bytes), &Described::in_caches);
  }
  for (std::size_t i = 0; i < layout_.depots; ++i) {
    // The second word of a list's first block is the next list.
    for (auto list = field<std::uint64_t>(depots.data(), i * sizeof(std::uint64_t));
         list != 0 && pass_.sound;) {
      const std::uint64_t first = address_in(list);
      list = link_at(first + sizeof(std::uint64_t));
      hold_list(first, &Described::in_caches);
    }
  }
  for (std::size_t i = 0; i < layout_.freed_by_others; ++i) {
    hold_list(address_in(field<std::uint64_t>(freed_by_others.data(), i * sizeof(std::uint64_t))),
              &Described::in_caches);
  }
  for (std::size_t i = 0; i < layout_.batches; ++i) {
    hold_list(field<std::uint64_t>(batches.data(), i * layout_.batch_bytes + layout_.batch_first),
              &Described::in_batches);
  }
}

// Counts the blocks of a list, which ends with 0.
void PassReader::hold_list(std::uint64_t first, std::uint32_t Described::* count) {
  std::size_t length = 0;
  for (std::uint64_t block = first; block != 0; block = link_at(block)) {
    if (++length > kMaxListBlocks || !hold(block, count)) {
      pass_.sound = false;
      return;
    }
  }
}

// Counts a block as held. Returns false if there cannot be a block at that address, or if more are
// held than there are: links that change meanwhile may lead in a circle.
bool PassReader::hold(std::uint64_t block, std::uint32_t Described::* count) {
  const std::uint64_t offset = block - pass_.region_begin;
  const std::uint32_t number =
      offset < pass_.region_bytes ? numbers_[offset / layout_.superblock_bytes] : std::uint32_t{0};
  if (number == 0 || !begins_block(pass_.superblocks[number - 1], block)) {
    pass_.sound = false;
    return false;
  }
  Described& superblock = pass_.superblocks[number - 1];
  if (++(superblock.*count) > superblock.carved) {
    pass_.sound = false;
    return false;
  }
  pass_.held.push_back(block);
  return true;
}

// Returns the link of a free block; 0 if it cannot be read.
std::uint64_t PassReader::link_at(std::uint64_t block) {
  std::vector<char>& page = link_pages_[block / kPieceBytes];
  if (page.empty()) {
    page.resize(kPieceBytes);
    if (!memory_.read(block / kPieceBytes * kPieceBytes, page.data(), page.size())) {
      pass_.sound = false;
      page.assign(kPieceBytes, 0);
    }
  }
  return field<std::uint64_t>(page.data(), block % kPieceBytes);
}

void PassReader::read_large() {
  const std::uint64_t capacity = value_at(memory_, layout_.large_capacity);
  read_entries(value_at(memory_, layout_.large_entries), capacity, pass_.large);
  read_entries(reinterpret_cast<std::uint64_t>(layout_.kept), value_at(memory_, layout_.kept_count),
               pass_.kept);
}

void PassReader::read_entries(std::uint64_t address, std::uint64_t count, std::vector<Piece>& to) {
  if (count == 0) {
    return;
  }
  std::vector<char> entries(count <= kMaxEntries ? count * layout_.large_entry_bytes : 0);
  if (entries.empty() || !memory_.read(address, entries.data(), entries.size())) {
    pass_.sound = false;
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const char* const entry = entries.data() + i * layout_.large_entry_bytes;
    if (const auto block = field<std::uint64_t>(entry, 0); block != 0) {
      to.emplace_back(block, field<std::uint64_t>(entry, layout_.large_entry_size));
    }
  }
}

}  // namespace heapwright::diagnose
