// Large blocks: the hash table, kept mappings, and resizing. See large.h.
#include "large.h"

#include <algorithm>

#include "../platform/platform.h"
#include "config.h"

namespace heapwright::alloc {

std::size_t Large::first_slot(std::uintptr_t address) const {
  return (address >> 12U) * 0x9e3779b97f4a7c15U >> 32U & (capacity_ - 1);
}

Large::Entry* Large::find(const void* block) const {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  if (capacity_ == 0 || address == 0) {
    return nullptr;
  }
  for (std::size_t i = first_slot(address);; i = (i + 1) & (capacity_ - 1)) {
    if (entries_[i].address == address) {
      return entries_ + i;
    }
    if (entries_[i].address == 0) {
      return nullptr;
    }
  }
}

void Large::insert(Entry entry) {
  std::size_t i = first_slot(entry.address);
  while (entries_[i].address != 0) {
    i = (i + 1) & (capacity_ - 1);
  }
  entries_[i] = entry;
  ++count_;
  bytes_ += entry.bytes;
}

// Makes room for one more entry, so that half of the table stays empty.
bool Large::make_room() {
  if ((count_ + 1) * 2 <= capacity_) {
    return true;
  }
  const std::size_t capacity = capacity_ == 0 ? platform::page_size() / sizeof(Entry) : capacity_ * 2;
  auto* const entries = static_cast<Entry*>(platform::map(capacity * sizeof(Entry)));
  if (entries == nullptr) {
    return false;
  }
  Entry* const old = entries_;
  const std::size_t old_capacity = capacity_;
  entries_ = entries;
  capacity_ = capacity;
  count_ = bytes_ = 0;
  for (std::size_t i = 0; i < old_capacity; ++i) {
    if (old[i].address != 0) {
      insert(old[i]);
    }
  }
  if (old != nullptr) {
    platform::unmap(old, old_capacity * sizeof(Entry));
  }
  return true;
}

// Erases an entry and moves up the entries that probing had pushed behind it.
void Large::erase(Entry* entry) {
  --count_;
  bytes_ -= entry->bytes;
  auto gap = static_cast<std::size_t>(entry - entries_);
  for (std::size_t i = (gap + 1) & (capacity_ - 1); entries_[i].address != 0; i = (i + 1) & (capacity_ - 1)) {
    const std::size_t distance = (i - first_slot(entries_[i].address)) & (capacity_ - 1);
    if (distance >= ((i - gap) & (capacity_ - 1))) {
      entries_[gap] = entries_[i];
      gap = i;
    }
  }
  entries_[gap] = {};
}

std::size_t Large::guard_bytes() const { return guards ? platform::page_size() : 0; }

void* Large::allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t page = platform::page_size();
  bytes = round_up(bytes + (bytes == 0 ? 1 : 0), page);
  const std::size_t extra = alignment <= page ? 0 : alignment - page;
  const std::size_t guard = guard_bytes();
  if (bytes + extra + guard < bytes || !make_room()) {
    return nullptr;
  }
  if (guard == 0) {
    if (void* const kept = reuse(bytes, alignment); kept != nullptr) {
      clean_ = false;
      return kept;
    }
  }
  clean_ = true;
  new_bytes_ = bytes;
  void* const mapped = platform::map(bytes + guard + extra);
  if (mapped == nullptr) {
    return nullptr;
  }
  auto address = reinterpret_cast<std::uintptr_t>(mapped);
  if (extra != 0) {  // unmap the parts before and behind the aligned block
    const std::uintptr_t begin = round_up(address, alignment);
    const std::size_t before = begin - address;
    if (before != 0) {
      platform::unmap(mapped, before);
    }
    if (extra != before) {
      platform::unmap(reinterpret_cast<void*>(begin + bytes + guard), extra - before);
    }
    address = begin;
  }
  if (guard != 0 && !platform::protect(reinterpret_cast<void*>(address + bytes), guard)) {
    platform::unmap(reinterpret_cast<void*>(address), bytes + guard);
    return nullptr;
  }
  insert({.address = address, .bytes = bytes});
  return reinterpret_cast<void*>(address);
}

std::size_t Large::usable(const void* block) const {
  const Entry* const entry = find(block);
  return entry == nullptr ? 0 : entry->bytes;
}

void Large::describe(void* block, std::size_t asked, Origin origin, const Hardening& hardening) {
  Entry* const entry = find(block);
  entry->asked = asked;
  entry->origin = origin;
  hardening.write_end(block, asked, entry->bytes - asked);
}

void Large::set_origin(const void* block, Origin origin) {
  if (Entry* const entry = find(block); entry != nullptr) {
    entry->origin = origin;
  }
}

Hardening::Mark Large::mark(const void* block, const Hardening& hardening) const {
  const Entry* const entry = find(block);
  if (entry == nullptr) {
    return {0, Origin::kMalloc, false};
  }
  return {entry->asked, entry->origin,
          hardening.end_intact(block, entry->asked, entry->bytes - entry->asked)};
}

bool Large::free(void* block, std::uint64_t random, Mapping* rest) {
  Entry* const entry = find(block);
  if (entry == nullptr) {
    return false;
  }
  const std::size_t bytes = entry->bytes;
  const std::uint32_t move = entry->move;
  erase(entry);
  const bool quarantined = random != 0 && bytes <= kMaxQuarantinedBytes && platform::release(block, bytes);
  if (bytes > kLargestKept || (guards && !quarantined)) {
    const Mapping mapping{block, bytes + guard_bytes()};
    if (rest != nullptr) {
      *rest = mapping;
    } else {
      unmap(mapping);
    }
    return true;
  }
  if (quarantined) {
    if (!quarantine_.is_seeded()) {
      quarantine_.seed(random);
    }
    quarantine_.add({.address = block, .bytes = bytes + guard_bytes()}, kMaxQuarantinedBytes, unmap);
    return true;
  }
  keep({.address = reinterpret_cast<std::uintptr_t>(block), .bytes = bytes, .move = move});
  return true;
}

Fault Large::fault_of(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const auto holds = [at](std::uintptr_t begin, std::size_t bytes) { return at - begin < bytes; };
  bool freed = false;
  for (std::size_t i = 0; i < kept_count_; ++i) {
    freed = freed || holds(kept_[i].address, kept_[i].bytes);
  }
  quarantine_.each([&](const Mapping& mapping) {
    freed = freed || holds(reinterpret_cast<std::uintptr_t>(mapping.address), mapping.bytes);
  });
  if (freed) {
    return Fault::kDoubleFree;
  }
  bool inside = false;
  for (std::size_t i = 0; i < capacity_; ++i) {
    inside = inside || holds(entries_[i].address, entries_[i].bytes);
  }
  return inside ? Fault::kInterior : Fault::kForeign;
}

void Large::empty_quarantine() { quarantine_.evict_all(0, unmap); }

void Large::unmap(const Mapping& mapping) { platform::unmap(mapping.address, mapping.bytes); }

// Keeps a range, as the latest, joined with those that it touches.
void Large::keep(Entry entry) {
  for (std::size_t i = kept_count_; i-- > 0;) {
    const bool before = kept_[i].address + kept_[i].bytes == entry.address;
    if (kept_[i].move == entry.move && (before || kept_[i].address == entry.address + entry.bytes)) {
      const Entry other = take_kept(i);
      entry.address = std::min(entry.address, other.address);
      entry.bytes += other.bytes;
    }
  }
  if (kept_count_ == kMaxKept) {
    drop_oldest();
  }
  kept_[kept_count_++] = entry;
  kept_bytes_ += entry.bytes;
}

// Takes a range out of those that are kept.
Large::Entry Large::take_kept(std::size_t i) {
  const Entry found = kept_[i];
  std::copy(kept_.begin() + i + 1, kept_.begin() + kept_count_, kept_.begin() + i);
  --kept_count_;
  kept_bytes_ -= found.bytes;
  return found;
}

// Returns the index of the kept range of the same move that begins at an address, or kept_count_.
std::size_t Large::find_kept_at(std::uintptr_t address, std::uint32_t move) const {
  std::size_t i = 0;
  while (i < kept_count_ && (kept_[i].address != address || kept_[i].move != move)) {
    ++i;
  }
  return i;
}

std::size_t Large::drop_oldest(std::size_t bytes) {
  if (kept_count_ == 0) {
    return 0;
  }
  Entry& oldest = kept_[0];
  bytes = std::min(bytes, oldest.bytes);
  oldest.bytes -= bytes;
  kept_bytes_ -= bytes;
  platform::unmap(reinterpret_cast<void*>(oldest.address + oldest.bytes), bytes);
  if (oldest.bytes == 0) {
    take_kept(0);
  }
  return bytes;
}

// Finds the shortest kept range that has room for an aligned block, or else, if the alignment is at
// most a page, the longest that has at least half of the bytes. Returns kept_count_ if there is
// none.
std::size_t Large::find_kept(std::size_t bytes, std::size_t alignment) const {
  std::size_t best = kept_count_;
  for (std::size_t i = 0; i < kept_count_; ++i) {
    const std::size_t have = kept_[i].bytes;
    const std::size_t unused = round_up(kept_[i].address, alignment) - kept_[i].address;
    if (alignment > platform::page_size() && (have < unused || have - unused < bytes)) {
      continue;
    }
    const std::size_t best_have = best == kept_count_ ? 0 : kept_[best].bytes;
    const bool better = have >= bytes ? best_have < bytes || have < best_have : have > best_have;
    if (have >= bytes / 2 && better) {
      best = i;
    }
  }
  return best;
}

// Allocates from a kept range. One that is too short grows. The rest stays kept, unless it is
// less than an eighth of the block. Returns nullptr if no range fits.
void* Large::reuse(std::size_t bytes, std::size_t alignment) {
  const std::size_t best = find_kept(bytes, alignment);
  if (best == kept_count_) {
    return nullptr;
  }
  Entry found = take_kept(best);
  if (const std::size_t before = round_up(found.address, alignment) - found.address; before != 0) {
    keep({.address = found.address, .bytes = before, .move = found.move});
    found.address += before;
    found.bytes -= before;
  }
  new_bytes_ = found.bytes < bytes ? bytes - found.bytes : 0;
  if (found.bytes < bytes) {
    const Entry grown = remap(found, bytes);
    if (grown.address == 0) {  // the kernel does not move parts that the program has advised differently
      platform::unmap(reinterpret_cast<void*>(found.address), found.bytes);
      return nullptr;
    }
    found = grown;
  }
  if (found.bytes - bytes > bytes / 8) {
    keep({.address = found.address + bytes, .bytes = found.bytes - bytes, .move = found.move});
    found.bytes = bytes;
  }
  insert(found);
  return reinterpret_cast<void*>(found.address);
}

// Changes the length of a mapping, which may move; without an address: no room.
Large::Entry Large::remap(Entry entry, std::size_t bytes) {
  void* const before = reinterpret_cast<void*>(entry.address);
  void* const moved = platform::remap(before, entry.bytes, bytes);
  return {.address = reinterpret_cast<std::uintptr_t>(moved),
          .bytes = bytes,
          .move = moved == before ? entry.move : ++moves_};
}

// Grows a block, into the kept range behind it as far as there is one; without an address: no room.
Large::Entry Large::grow(const Entry& entry, std::size_t bytes) {
  const std::uintptr_t end = entry.address + entry.bytes;
  const std::size_t i = find_kept_at(end, entry.move);
  const std::size_t behind = i < kept_count_ ? take_kept(i).bytes : 0;
  Entry grown = {.address = entry.address, .bytes = entry.bytes + behind, .move = entry.move};
  grown = grown.bytes < bytes ? remap(grown, bytes) : grown;
  const std::size_t used = grown.address == 0 ? 0 : std::min(behind, bytes - entry.bytes);
  new_bytes_ = bytes - entry.bytes - used;
  if (used < behind) {
    keep({.address = end + used, .bytes = behind - used, .move = entry.move});
  }
  grown.bytes = bytes;
  return grown;
}

void* Large::resize(void* block, std::size_t bytes) {
  Entry* const entry = find(block);
  bytes = round_up(bytes, platform::page_size());
  if (entry == nullptr || bytes == entry->bytes) {
    return entry == nullptr ? nullptr : block;
  }
  if (!guards) {
    const Entry before = *entry;
    const Entry after = bytes > before.bytes
                            ? grow(before, bytes)
                            : Entry{.address = before.address, .bytes = bytes, .move = before.move};
    if (after.address != 0) {
      erase(entry);
      insert(after);
    }
    if (bytes < before.bytes) {
      keep({.address = before.address + bytes, .bytes = before.bytes - bytes, .move = before.move});
    }
    return reinterpret_cast<void*>(after.address);
  }
  const std::size_t before = entry->bytes;
  void* moved = block;
  if (bytes < before) {  // the first superfluous page becomes the guard
    if (!platform::protect(static_cast<char*>(block) + bytes, guard_bytes())) {
      return block;  // keeps its length and its guard
    }
    platform::unmap(static_cast<char*>(block) + bytes + guard_bytes(), before - bytes);
  } else {  // the block moves away from its old guard
    // mremap moves it only while the process may have a few more mappings, so there is one for the
    // new guard.
    moved = platform::remap(block, before, bytes + guard_bytes());
    if (moved != nullptr) {
      platform::protect(static_cast<char*>(moved) + bytes, guard_bytes());
      platform::unmap(static_cast<char*>(block) + before, guard_bytes());
    }
  }
  if (moved != nullptr) {
    erase(entry);
    insert({.address = reinterpret_cast<std::uintptr_t>(moved), .bytes = bytes});
  }
  return moved;
}

}  // namespace heapwright::alloc
