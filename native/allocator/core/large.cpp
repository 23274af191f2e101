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

void* Large::allocate(std::size_t bytes, std::size_t alignment, bool zero) {
  const std::size_t page = platform::page_size();
  bytes = round_up(bytes + (bytes == 0 ? 1 : 0), page);
  const std::size_t extra = alignment <= page ? 0 : alignment - page;
  const std::size_t guard = guard_bytes();
  if (bytes + extra + guard < bytes || !make_room()) {
    return nullptr;
  }
  if (guard == 0) {
    if (void* const kept = reuse(bytes, alignment, zero); kept != nullptr) {
      clean_ = zero;
      return kept;
    }
  }
  if (extra != 0) {  // the new block replaces a kept mapping that is not aligned
    if (const std::size_t i = find_kept(bytes, 1); i < kept_count_) {
      const Entry kept = take_kept(i);
      platform::unmap(reinterpret_cast<void*>(kept.address), kept.bytes);
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
  if (guard != 0) {
    platform::protect(reinterpret_cast<void*>(address + bytes), guard);
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
  erase(entry);
  const bool quarantined = random != 0 && bytes <= kMaxQuarantinedBytes && platform::release(block, bytes);
  if (bytes > kLargestKept || (guards && !quarantined)) {
    forget_tail(reinterpret_cast<std::uintptr_t>(block) + bytes);
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
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  keep({.address = address, .bytes = bytes + take_tail(address + bytes)});
  return true;
}

void Large::empty_quarantine() { quarantine_.evict_all(0, unmap); }

void Large::unmap(const Mapping& mapping) { platform::unmap(mapping.address, mapping.bytes); }

// Keeps a mapping, as the latest.
void Large::keep(Entry entry) {
  if (kept_count_ == kMaxKept) {
    drop_oldest();
  }
  kept_[kept_count_++] = entry;
  kept_bytes_ += entry.bytes;
}

// Takes a mapping out of those that are kept.
Large::Entry Large::take_kept(std::size_t i) {
  const Entry found = kept_[i];
  std::copy(kept_.begin() + i + 1, kept_.begin() + kept_count_, kept_.begin() + i);
  --kept_count_;
  kept_bytes_ -= found.bytes;
  return found;
}

// Returns the index of the tail that is kept behind a block which ends here, or kept_count_.
std::size_t Large::find_tail(std::uintptr_t end) const {
  std::size_t i = 0;
  while (i < kept_count_ && (!kept_[i].tail || kept_[i].address != end)) {
    ++i;
  }
  return i;
}

// Takes the tail behind a block which ends here. Returns its bytes, or 0 if there is none.
std::size_t Large::take_tail(std::uintptr_t end) {
  const std::size_t i = find_tail(end);
  return i < kept_count_ ? take_kept(i).bytes : 0;
}

// The block that ended here does so no longer: another mapping may get its addresses, and is not to
// be joined with the tail.
void Large::forget_tail(std::uintptr_t end) {
  if (const std::size_t i = find_tail(end); i < kept_count_) {
    kept_[i].tail = false;
  }
}

std::size_t Large::drop_oldest() {
  if (kept_count_ == 0) {
    return 0;
  }
  const Entry oldest = take_kept(0);
  platform::unmap(reinterpret_cast<void*>(oldest.address), oldest.bytes);
  return oldest.bytes;
}

// Finds the shortest kept mapping that is long enough, or else the longest. It has at least half of
// the bytes, and at most four times as many: a small block must not divide the mapping of a large
// one, which the program would then have to touch anew. For an alignment above a page it must be
// aligned and long enough, because a mapping that grows may move. Returns kept_count_ if there is
// none.
std::size_t Large::find_kept(std::size_t bytes, std::size_t alignment) const {
  std::size_t best = kept_count_;
  for (std::size_t i = 0; i < kept_count_; ++i) {
    const std::size_t have = kept_[i].bytes;
    if (alignment > platform::page_size() && (kept_[i].address % alignment != 0 || have < bytes)) {
      continue;
    }
    const std::size_t best_have = best == kept_count_ ? 0 : kept_[best].bytes;
    const bool better = have >= bytes ? best_have < bytes || have < best_have : have > best_have;
    if (have >= bytes / 2 && have / 4 <= bytes && better) {
      best = i;
    }
  }
  return best;
}

// Reuses a kept mapping. One that is too short grows; one that is more than an eighth too long is
// divided. Returns nullptr if none fits. `zero`: its memory returns to the kernel first. Filling it
// with zeros would touch pages that the program may never touch.
void* Large::reuse(std::size_t bytes, std::size_t alignment, bool zero) {
  const std::size_t best = find_kept(bytes, alignment);
  if (best == kept_count_) {
    return nullptr;
  }
  Entry& found = kept_[best];
  std::size_t length = found.bytes;
  void* block = reinterpret_cast<void*>(found.address);
  new_bytes_ = length < bytes ? bytes - length : 0;
  if (length < bytes) {
    block = platform::remap(block, length, bytes);
    length = bytes;
    if (block == nullptr) {
      return nullptr;
    }
  }
  if (length - bytes > bytes / 8) {
    found = {.address = found.address + bytes, .bytes = length - bytes, .tail = true};
    kept_bytes_ -= bytes;
    length = bytes;
  } else {
    take_kept(best);
  }
  if (zero) {
    platform::purge(block, length);
  }
  insert({.address = reinterpret_cast<std::uintptr_t>(block), .bytes = length});
  return block;
}

// Grows a block, into its tail as far as there is one; nullptr: no room.
void* Large::grow(Entry* entry, std::size_t bytes) {
  void* const block = reinterpret_cast<void*>(entry->address);
  const std::uintptr_t end = entry->address + entry->bytes;
  const std::size_t tail = take_tail(end);
  const std::size_t length = entry->bytes + tail;
  void* const grown = length >= bytes ? block : platform::remap(block, length, bytes);
  const std::size_t used = grown == nullptr ? 0 : std::min(tail, bytes - entry->bytes);
  if (used < tail) {
    keep({.address = end + used, .bytes = tail - used, .tail = true});
  }
  return grown;
}

void* Large::resize(void* block, std::size_t bytes) {
  Entry* const entry = find(block);
  bytes = round_up(bytes, platform::page_size());
  if (entry == nullptr || bytes == entry->bytes) {
    return entry == nullptr ? nullptr : block;
  }
  const std::size_t before = entry->bytes;
  void* moved = block;
  if (!guards && bytes > before) {
    moved = grow(entry, bytes);
  } else if (!guards) {
    forget_tail(entry->address + before);
    moved = platform::remap(block, before, bytes);
  } else if (bytes < before) {  // the first superfluous page becomes the guard
    platform::protect(static_cast<char*>(block) + bytes, guard_bytes());
    platform::unmap(static_cast<char*>(block) + bytes + guard_bytes(), before - bytes);
  } else {  // the block moves away from its old guard
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
